"""The items that the filters of a job may have, which depend on the handler."""

import builtins
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from cronledger.rules.error_codes import CODE_LENGTH, ErrorCode
from cronledger.rules.model import Handler, Job
from cronledger.rules.problems import Problem, shown
from cronledger.rules.retry_filters import FILTERS, name_of

_NAME = r"[^\W\d]\w*"
_CLASS = re.compile(rf"{_NAME}(\.({_NAME}|<locals>))*")
_NUMBERS = re.compile(r"[0-9]{1,3}(-[0-9]{1,3})?")
_STATUSES = re.compile(r"[1-5]xx")
_SQLSTATE = re.compile(r"[0-9A-Z]{2}([0-9A-Z]{3})?")
_SIGNALS = frozenset(x.name for x in signal.Signals)  # without second names, such as SIGIOT
_NEVER_REPORTED = ("stale_timeout", "runner_crashed", "shutdown", "not_ended")
_REQUESTING = (Handler.PYTHON, Handler.EXTERNAL)
_ALWAYS = (ErrorCode.HANDLER_ERROR, ErrorCode.NOT_STARTED, ErrorCode.TIMEOUT)


def problems(job: Job, where: str | None = None) -> Iterator[Problem]:
    """Yield the problems of the filters of `job`: items that no failure of its handler has."""
    if job.not_ready_on and job.handler is Handler.EXTERNAL:
        message = "does not apply to workers"
        yield Problem(
            where, job.name, "not_ready_on", shown(job.not_ready_on[0]), message,
            "remove it; a worker calls the SQL function not_ready() instead",
        )  # fmt: skip
        return
    for field in FILTERS:
        for item in getattr(job, field) or ():
            if (found := _problem(job.handler, field, item)) is not None:
                message, remedy = found
                yield Problem(where, job.name, field, shown(item), message, remedy)


def _problem(handler: Handler, field: str, item: str) -> tuple[str, str] | None:
    """Return the problem of an item, and its remedy."""
    form = _FORMS[handler]
    if item == ErrorCode.RETRY_REQUESTED and handler in _REQUESTING:
        if field == "retry_on":
            return None
        return "has no effect, because a requested retry bypasses all filters", "remove it"
    if item in form.codes or form.has(item):
        return None
    other = _builtin(item) if handler is Handler.PYTHON else None
    if other not in (None, item):
        return "is not the name of this class", f'write "{other}"'
    remedy = f"use {form.examples}"
    if form.codes:
        remedy += f", or one of the error codes {', '.join(sorted(form.codes))}"
    return f"is not a failure of handler = {handler}", remedy


def _is_class(item: str) -> bool:
    return _CLASS.fullmatch(item) is not None and _builtin(item) == item


def _builtin(item: str) -> str | None:
    """Return the name of this exception of Python, or None if there is none.

    The name of a class of another module is returned as it is.
    """
    name = item.removeprefix("builtins.")
    if "." in name:
        return item
    kind = getattr(builtins, name, None)
    return name_of(kind) if isinstance(kind, type) and issubclass(kind, BaseException) else None


def _is_end(item: str) -> bool:
    return _are_numbers(item, 1, 255) or item in _SIGNALS


def _is_sqlstate(item: str) -> bool:
    return _SQLSTATE.fullmatch(item) is not None


def _is_status(item: str) -> bool:
    return _are_numbers(item, 100, 599) or _STATUSES.fullmatch(item) is not None


def _is_code(item: str) -> bool:
    """Return whether a worker can pass this code to the SQL function `fail`."""
    return item == item.strip() and len(item) <= CODE_LENGTH and item not in _NEVER_REPORTED


def _are_numbers(item: str, low: int, high: int) -> bool:
    if _NUMBERS.fullmatch(item) is None:
        return False
    first, _, last = item.partition("-")
    return low <= int(first) <= int(last or first) <= high


class _Form(NamedTuple):
    """The items of one handler: those that it `has`, with examples, and error codes."""

    has: Callable[[str], bool]
    examples: str
    codes: tuple[str, ...] = _ALWAYS


_FORMS: Mapping[Handler, _Form] = {
    Handler.PYTHON: _Form(
        _is_class,
        'the name of an exception as error_msg shows it, such as "ConnectionError" or '
        '"psycopg.OperationalError"',
    ),
    Handler.COMMAND: _Form(
        _is_end,
        'an exit status such as "75", a range such as "64-78", a signal such as "SIGKILL"',
        (*_ALWAYS, ErrorCode.EXIT_CODE, ErrorCode.SIGNAL),
    ),
    Handler.SQL: _Form(_is_sqlstate, 'a SQLSTATE such as "40001", a class of them such as "40"'),
    Handler.HTTP: _Form(
        _is_status,
        'a status such as "503", a range such as "500-599", "5xx"',
        (*_ALWAYS, ErrorCode.HTTP_STATUS),
    ),
    Handler.EXTERNAL: _Form(_is_code, "a code that a worker can pass to `fail`", ()),
    Handler.OBSERVED: _Form(_is_code, "a code", ()),  # rules/validation.py refuses all filters
}

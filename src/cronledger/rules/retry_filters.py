"""Filters: the items of `retry_on`, `never_retry_on` and `not_ready_on`, and what they match.

A failure has names. Its error_code is one of them. The others depend on the handler: the classes of
an exception and their base classes, an exit status or a signal, a status of HTTP, a SQLSTATE and
its class. An item is one of these names, a range of numbers (`64-78`), or a class of HTTP (`5xx`).
`retry_items` checks items.
"""

import builtins
import re
from collections.abc import Collection

from cronledger.rules.error_codes import ErrorCode
from cronledger.rules.model import Job

RETRY_FILTERS = ("retry_on", "never_retry_on")
FILTERS = (*RETRY_FILTERS, "not_ready_on")
UNFILTERED = frozenset({ErrorCode.RETRY_REQUESTED, ErrorCode.LEASE_LOST, ErrorCode.SHUTDOWN})
"""The handler requested the retry, or the runner caused the end of the attempt."""
NOT_RETRIED = "not retried: "
"""The beginning of the last line of an error_msg, if a filter prevented a retry."""

Causes = frozenset[frozenset[str]]
"""The names of a failure besides its error_code. An exception group has one set for each of its
exceptions; a failure without further names has none."""

_NUMBER = re.compile(r"[0-9]{1,4}")
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")


def refusal(job: Job, code: str, causes: Causes) -> str | None:
    """Return why the filters of `job` prevent a retry of this failure, or None if they do not.

    A failure with several causes is retried only if it would be for each of them.
    """
    if code in UNFILTERED:
        return None
    failures = [names | {code} for names in causes or {frozenset[str]()}]
    for item in job.never_retry_on or ():
        if any(_matches(item, names) for names in failures):
            return f"never_retry_on has {item}"
    wanted = job.retry_on or ()
    if wanted and not all(any(_matches(item, names) for item in wanted) for names in failures):
        return "retry_on has no match"
    return None


def says_not_ready(job: Job, code: str, causes: Causes) -> bool:
    """Return whether this failure says that the work cannot begin yet.

    A failure with several causes counts as not ready only if every cause does.
    """
    if code in UNFILTERED or not job.not_ready_on:
        return False
    failures = [names | {code} for names in causes or {frozenset[str]()}]
    return all(any(_matches(item, names) for item in job.not_ready_on) for names in failures)


def _matches(item: str, names: Collection[str]) -> bool:
    if item in names:
        return True
    span = _span(item)
    return span is not None and any(int(name) in span for name in names if _NUMBER.fullmatch(name))


def _span(item: str) -> range | None:
    """Return the numbers of `64-78` or `5xx`, or None for another item."""
    if found := _RANGE.fullmatch(item):
        return range(int(found[1]), int(found[2]) + 1)
    if item.endswith("xx") and item[:-2].isdecimal():
        return range(int(item[:-2]) * 100, int(item[:-2]) * 100 + 100)
    return None


def one_cause(*names: str) -> Causes:
    """Return the causes of a failure that has these names."""
    return frozenset({frozenset(names)})


def causes_of(error: BaseException) -> Causes:
    """Return the names of an exception: its classes, and its SQLSTATE with its class if it has one.

    Each exception of a group is a cause of its own, and also has the names of the group.
    """
    causes = set()
    left: list[tuple[BaseException, frozenset[str]]] = [(error, frozenset())]
    while left:
        one, outer = left.pop()
        names = outer | _names(one)
        if isinstance(one, BaseExceptionGroup):
            left.extend((inner, names) for inner in one.exceptions)
        else:
            causes.add(names)
    return frozenset(causes)


def _names(error: BaseException) -> frozenset[str]:
    names = {name_of(kind) for kind in type(error).__mro__}
    try:
        state = getattr(error, "sqlstate", None)
    except Exception:  # noqa: BLE001 - an attribute of a foreign class may raise anything
        state = None
    return frozenset(names | {state, state[:2]} if isinstance(state, str) else names)


def name_of(kind: type) -> str:
    """Return the name of a class as a traceback shows it: `ValueError`, `shop.errors.Busy`."""
    module, name = kind.__module__, kind.__qualname__
    return name if module == builtins.__name__ else f"{module}.{name}"


def split_note(message: str | None) -> tuple[str | None, str | None]:
    """Return an error_msg without the line about filters, and what this line says, if it is there.

    The inverse of what `outcome.decide` and the SQL function `fail` append.
    """
    text, _, last = (message or "").rpartition("\n")
    if last.startswith(NOT_RETRIED):
        return text or None, last.removeprefix(NOT_RETRIED)
    return message, None

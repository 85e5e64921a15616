"""Problems of a configuration, with their remedies, and the exit codes.

A `Problem` names the place, the field, the value, what is wrong, and a remedy. A
`ConfigurationError` carries every problem of a source, so that one report is enough.
"""

import difflib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum, IntEnum

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cronledger.rules import durations
from cronledger.rules.limits import FUNCTION_PATTERN, NAME_PATTERN

SHOWN_LENGTH = 120
REFERENCE = "docs/configuration.md"
_FORMS = {
    NAME_PATTERN: "use 1 to 200 characters, none of them a control character",
    FUNCTION_PATTERN: "write it like package.module:function",
}
"""The remedies for patterns that a person cannot read."""


class Exit(IntEnum):
    """Exit codes. `EXIT_MEANINGS` describes them."""

    FINE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    SCHEMA = 4
    OTHER_DATABASE = 5


EXIT_MEANINGS = {
    Exit.FINE: "The command succeeded.",
    Exit.FAILED: "The command failed, or a check found a problem.",
    Exit.USAGE: "Usage or configuration error. Nothing was changed.",
    Exit.UNREACHABLE: "The database is unreachable.",
    Exit.SCHEMA: "The schema is older or newer than this program. Run `cronledger migrate`.",
    Exit.OTHER_DATABASE: "This is a different database than expected. Either it was restored or "
    "cloned (run `cronledger accept-database`), or the DSN leads to a different ledger than when "
    "`run` started.",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem, or, if `warning`, one probable mistake.

    `where`: a file, an application or `environment`. `value`: the text that `shown` returns, or
    None if there is no value or it is secret. Name the arguments, and omit what does not apply.
    """

    where: str | None = None
    job: str | None = None
    field: str | None = None
    value: str | None = None
    message: str = ""
    remedy: str = ""
    warning: bool = False

    def __str__(self) -> str:
        """One line: `FILE: jobs.NAME.FIELD = VALUE: message; remedy`."""
        path = ".".join(
            part for part in ("jobs" if self.job else None, self.job, self.field) if part
        )
        if path and self.value is not None:
            path = f"{path} = {self.value}"
        text = "; ".join(part for part in (self.message, self.remedy) if part)
        line = ": ".join(part for part in (self.where, path, text) if part)
        return " ".join(line.split())


class ConfigurationError(Exception):
    """A configuration was refused as a whole, because of `problems`.

    `causes`: the exceptions that the user's own modules raised while they were imported.
    """

    def __init__(self, problems: Iterable[Problem], causes: Iterable[BaseException] = ()) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.causes: tuple[BaseException, ...] = tuple(causes)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class RefusedError(ValueError):
    """A validator refuses a value. `problems_of` reports its problem and its remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


def shown(value: object) -> str:
    """Return `value` on one line, in the syntax of TOML or JSON, cut to 120 characters."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError, RecursionError):
        text = f"a value of type {type(value).__name__}"
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\x7f", "\\u007f")
    return text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 1] + "…"


def _plain(value: object) -> object:
    """Return what TOML or JSON has for a value that JSON does not know."""
    if isinstance(value, timedelta):
        return durations.format(value) if value >= timedelta(0) else str(value)
    if isinstance(value, Enum):
        return value.value
    return value.isoformat() if isinstance(value, date) else str(value)


def nearest(name: str, known: Collection[str]) -> str:
    """Return the remedy for an unknown name: the most similar known name, or a list of all."""
    matches = difflib.get_close_matches(name, sorted(known), n=1)
    if matches:
        return f"did you mean `{matches[0]}`?"
    return f"use one of {', '.join(sorted(known))}"


def or_elsewhere(remedy: str) -> str:
    """Return the remedy for a name that a source may declare which was not checked."""
    if remedy.endswith("?"):
        return f"{remedy} If not, also check the source that declares it"
    return f"also check the source that declares it, or {remedy}"


def problems_of(
    error: ValidationError,
    *,
    where: str | None = None,
    job: str | None = None,
    known: Collection[str] = (),
    prefix: str = "",
) -> tuple[Problem, ...]:
    """Return one `Problem` for each error of pydantic.

    `known`: the valid names, one of which is suggested for an unknown name. `prefix`: text before
    each field.
    """
    found = []
    for detail in error.errors(include_url=False):
        message, remedy = _described(detail, known)
        found.append(Problem(
            where=where, job=job, field=(prefix + _path(detail["loc"])).rstrip(".") or None,
            value=None if detail["type"] == "missing" else shown(detail["input"]),
            message=message, remedy=remedy,
        ))  # fmt: skip
    return tuple(found)


def _path(loc: tuple[int | str, ...]) -> str:
    loc = tuple(part for part in loc if part != "[key]")
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc]
    return "".join(parts).removeprefix(".")


def _described(detail: ErrorDetails, known: Collection[str]) -> tuple[str, str]:
    """Return message and remedy for one error of pydantic."""
    context = detail.get("ctx", {})
    field = str(detail["loc"][0]) if detail["loc"] else ""
    message = detail["msg"].removeprefix("Input ")
    message = message[:1].lower() + message[1:]
    remedy = f"see `{field}` in {REFERENCE}" if field else f"see {REFERENCE}"
    match detail["type"]:
        case "extra_forbidden":
            message = "unknown name"
            remedy = nearest(str(detail["loc"][-1]), known) if known else remedy
        case "missing":
            message, remedy = "is missing", "add it"
        case "enum" | "literal_error":
            message, remedy = "is not a valid choice", f"use {context['expected']}"
        case "value_error":
            cause = context["error"]
            message = str(getattr(cause, "problem", cause))
            remedy = str(getattr(cause, "remedy", remedy))
        case "tuple_type":
            message, remedy = "is not a list", f"put it in brackets: {field} = […]"
        case "string_pattern_mismatch":
            message = "has an invalid format"
            pattern = context["pattern"]
            remedy = _FORMS.get(pattern, f"it must match {pattern}")
        case "greater_than_equal":
            message, remedy = "is too small", f"use at least {shown(context['ge'])}"
        case "less_than_equal":
            message, remedy = "is too large", f"use at most {shown(context['le'])}"
    return message, remedy


class PayloadInvalidError(Exception):
    """The payload of an execution does not match the type of the handler's parameter."""

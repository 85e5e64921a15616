"""What is wrong with a configuration, said so that it can be put right; exit codes.

A `Problem` names the place, the field, the value, what is wrong and what to write instead. They are
collected: a `ConfigurationError` carries every problem of a source, never only the first one.
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

SHOWN_LENGTH = 120
REFERENCE = "docs/configuration.md"


class Exit(IntEnum):
    """How the process ends; the meaning of each is in `EXIT_MEANINGS`."""

    FINE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    SCHEMA = 4
    OTHER_DATABASE = 5


EXIT_MEANINGS = {
    Exit.FINE: "What was asked for was done.",
    Exit.FAILED: "It was tried and failed, or what was checked does not hold.",
    Exit.USAGE: "Usage or configuration: nothing was done.",
    Exit.UNREACHABLE: "The database could not be reached.",
    Exit.SCHEMA: "The schema is older or newer than this program; run `cronledger migrate`.",
    Exit.OTHER_DATABASE: "This is another database than the one that was initialised: a restored "
    "or cloned one (run `cronledger accept-database`), or the DSN leads to another ledger than the "
    "one that `run` began with.",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, or (`warning`) that probably is not what was meant.

    `where`: a file, an application or `environment`. `value` is text as `shown` writes it; None
    when there is none or it is secret.
    """

    where: str | None
    job: str | None
    field: str | None
    value: str | None
    message: str
    remedy: str
    warning: bool = False

    def __str__(self) -> str:
        """One line: `FILE: jobs.NAME.FIELD = VALUE: message; remedy`."""
        path = ".".join(
            part for part in ("jobs" if self.job else None, self.job, self.field) if part
        )
        if path and self.value is not None:
            path = f"{path} = {self.value}"
        said = "; ".join(part for part in (self.message, self.remedy) if part)
        line = ": ".join(part for part in (self.where, path, said) if part)
        return " ".join(line.split())


class ConfigurationError(Exception):
    """A configuration that was refused as a whole; `problems` says everything that is wrong.

    `causes`: what the user's own modules raised while they were imported. Their tracebacks show
    where.
    """

    def __init__(self, problems: Iterable[Problem], causes: Iterable[BaseException] = ()) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.causes: tuple[BaseException, ...] = tuple(causes)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class RefusedError(ValueError):
    """What a validator of ours raises, so that `problems_of` can name the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


def shown(value: object) -> str:
    """Answer `value` on one line, as TOML or JSON would write it, cut to 120 characters."""
    if isinstance(value, timedelta):
        value = durations.format(value) if value >= timedelta(0) else str(value)
    elif isinstance(value, Enum):
        value = value.value
    elif isinstance(value, date):
        value = value.isoformat()
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        text = f"a value of type {type(value).__name__}"
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\x7f", "\\u007f")
    return text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 1] + "…"


def nearest(name: str, known: Collection[str]) -> str:
    """Answer the remedy for an unknown name: the known one that is most like it, or the list."""
    matches = difflib.get_close_matches(name, sorted(known), n=1)
    if matches:
        return f"did you mean `{matches[0]}`?"
    return f"known here: {', '.join(sorted(known))}"


def problems_of(
    error: ValidationError,
    *,
    where: str | None = None,
    job: str | None = None,
    known: Collection[str] = (),
    prefix: str = "",
) -> tuple[Problem, ...]:
    """Answer one `Problem` for each thing pydantic found.

    `known`: the names that would have been right, to suggest one for an unknown name. `prefix`
    goes before each field.
    """
    found = []
    for detail in error.errors(include_url=False):
        field = (prefix + _path(detail["loc"])).rstrip(".")
        message, remedy = _said(detail, known)
        value = None if detail["type"] == "missing" else shown(detail["input"])
        found.append(Problem(where, job, field or None, value, message, remedy))
    return tuple(found)


def _path(loc: tuple[int | str, ...]) -> str:
    loc = tuple(part for part in loc if part != "[key]")
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc]
    return "".join(parts).removeprefix(".")


def _said(detail: ErrorDetails, known: Collection[str]) -> tuple[str, str]:
    """Message and remedy for one thing that pydantic found."""
    context = detail.get("ctx", {})
    field = str(detail["loc"][0]) if detail["loc"] else ""
    message = detail["msg"].removeprefix("Input ")
    message = message[:1].lower() + message[1:]
    remedy = f"see `{field}` in {REFERENCE}" if field else f"see {REFERENCE}"
    match detail["type"]:
        case "extra_forbidden":
            message = "there is no such name"
            remedy = nearest(str(detail["loc"][-1]), known) if known else remedy
        case "missing":
            message, remedy = "is missing", "add it"
        case "enum" | "literal_error":
            message, remedy = "is none of the choices", f"write {context['expected']}"
        case "value_error":
            cause = context["error"]
            message = str(getattr(cause, "problem", cause))
            remedy = str(getattr(cause, "remedy", remedy))
        case "string_pattern_mismatch":
            message = "does not have the form it must have"
            remedy = f"it must match {context['pattern']}"
    return message, remedy

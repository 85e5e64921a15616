"""Write what editors show of `@app.job` into the source: the policies and their meanings.

Type checkers and editors read the source and run nothing, so these lines cannot be computed.
"""

import re
import textwrap
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from cronledger.rules import durations, field_types, notify, requirements, selectors, urls
from cronledger.rules.model import OF_OPERATORS, Job

SOURCE = Path(__file__).parents[2] / "src" / "cronledger" / "declaring"
DECIDED = frozenset({"name", "schedule", "handler", "target", "payload_schema", *OF_OPERATORS})
"""Fields of `Job` that are no policies of `@app.job`: arguments of their own, or derived."""
TYPED = "policies.py"
DESCRIBED = "app.py"
_KEYS = re.compile(r'(?<=make docs`\.\n    """\n\n).*', re.DOTALL)
_ARGUMENTS = re.compile(r"(?<=inside those of the App\.\n).*?(?=\n        Raises:)", re.DOTALL)
_FORMS: tuple[tuple[object, str], ...] = (
    (field_types.Duration, "Length"),
    (field_types.Limit, "Length | None"),
    (field_types.Instant, "datetime | str"),
    (field_types.Deadline, "time | Length"),
    (field_types.ExpectedDuration, "Length"),
    (field_types.Labels, "Mapping[str, str] | None"),
    (field_types.RetryFilter, "Sequence[Failure] | None"),
    (notify.Rules, "str | Notify | Sequence[str | Notify] | None"),
    (selectors.Selector, "str | Sequence[str] | None"),
    (requirements.Requires, "str | Requirement | Sequence[str | Requirement] | None"),
    (requirements.After, "str | Requirement | Sequence[str | Requirement] | None"),
    (urls.HttpUrl, "str"),
    (Any, "Any"),
)
"""What Python code may pass for a type of `Job`."""
_IN_PYTHON: Mapping[str, str] = {
    "scopes": "Sequence[str] | Provider | None",
}
"""The forms of policies for which Python code may pass more than their type in `Job`."""
_MEANINGS: Mapping[str, str] = {
    "description": "A description for people. Default: the first line of the docstring.",
    "labels": 'Texts by which listings are filtered, such as {"team": "data"}.',
    "notify": 'The channel that gets alerts, or rules such as Notify(channel="ops", after=3).',
    "run_timeout": "An attempt is stopped after this time. None: no limit. Default: 1h.",
    "retry_on": "Only these exceptions are retried: classes, their names, or error codes.",
    "never_retry_on": "These are not retried, even if `retry_on` has them.",
    "requires": 'Jobs that must have succeeded first: names, or Requirement(job=…, scope="same").',
    "scopes": "The scope_ids, or a function without parameters that returns them.",
}
"""The meanings of policies that Python code writes differently than a file."""


def typed() -> str:
    """Return the keys of `Policies`."""
    lines = [
        f"    {name}: {_IN_PYTHON.get(name) or _form(annotation)}\n"
        for name, annotation in Job.__annotations__.items()
        if name in Job.model_fields and name not in DECIDED
    ]
    return "".join(lines)


def arguments() -> str:
    """Return the descriptions of the policies in the docstring of `App.job`."""
    parts = [
        textwrap.fill(
            f"{name}: {_MEANINGS.get(name) or _meaning(name)}", 100,
            initial_indent=" " * 12, subsequent_indent=" " * 16,
            break_long_words=False, break_on_hyphens=False,
        )
        for name in Job.model_fields
        if name not in DECIDED
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def written() -> dict[Path, str]:
    """Return the text of each file into which policies are written."""
    found = {}
    for name, place, text in ((TYPED, _KEYS, typed()), (DESCRIBED, _ARGUMENTS, arguments())):
        source = (SOURCE / name).read_text("utf-8")
        if (old := place.search(source)) is None:
            raise LookupError(f"{name} has no place for the policies; restore the lines around it")
        found[SOURCE / name] = source[: old.start()] + text + source[old.end() :]
    return found


def _form(annotation: Any) -> str:  # noqa: PLR0911
    for known, form in _FORMS:
        if annotation is known:
            return form
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        forms = [_form(part) for part in parts if part is not NoneType]
        return " | ".join([*forms, "None"] if NoneType in parts else forms)
    if origin is Literal:
        return f"Literal[{', '.join(map(_quoted, parts))}]"
    if origin is tuple:
        return f"Sequence[{_form(parts[0])}]"
    if hasattr(annotation, "__metadata__"):
        return _form(annotation.__origin__)
    if issubclass(annotation, Enum):
        return f"{annotation.__name__} | Literal[{', '.join(_quoted(x.value) for x in annotation)}]"
    return str(annotation.__name__)


def _meaning(name: str) -> str:
    """Return the first sentence of the description, and the default."""
    field = Job.model_fields[name]
    sentence = re.split(r"(?<=\.)\s+(?=[A-Z`])", field.description or "", maxsplit=1)[0]
    sentence = sentence.replace("`true`", "`True`").replace("`false`", "`False`")
    default = _default(field.get_default(call_default_factory=True, validated_data={}))
    return f"{sentence} Default: {default}." if default else sentence


def _default(value: Any) -> str:
    match value:
        case Enum():
            return _quoted(value.value)
        case str():
            return _quoted(value)
        case timedelta():
            return durations.format(value) if value else ""
        case tuple():
            return ", ".join(map(_default, value))
        case _:
            return str(value) if value else ""


def _quoted(text: str) -> str:
    return f'"{text}"'

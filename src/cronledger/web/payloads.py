"""The payload of a run that a person starts: the fields of its JSON Schema, and what they enter.

A property of a simple type has a field of its own, and any other property a field for JSON. An
empty field is left out of the payload.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from math import isfinite
from typing import Any, Literal, NoReturn

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from cronledger.rules.instants import iso
from cronledger.web.redaction import Redaction

MOST_FIELDS = 50
"""Properties of a form. A schema with more keeps the field for the whole payload."""
MOST_REFERENCES = 10
LONGEST_NUMBER = 300
AGAIN = "Hidden values are null now: enter them again."
LONGEST_REASON = 300
_NULL = {"type": "null"}
_NAMING = ("additionalProperties", "dependentRequired", "required")
"""Keywords whose errors name properties, and quote no value."""

Kind = Literal[
    "string", "integer", "number", "boolean", "choice", "date", "date-time", "json"
]  # fmt: skip
Schema = dict[str, Any]


class BadValueError(ValueError):
    """A field cannot be read. The message is the reason."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field for one property.

    `choices`: the JSON of each permitted value, with its words. `given`: what was entered.
    `problem`: why it is refused.
    """

    name: str
    kind: Kind
    required: bool = False
    nullable: bool = False
    secret: bool = False
    description: str | None = None
    default: str | None = None
    choices: Sequence[tuple[str, str]] = ()
    given: str = ""
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Entered:
    """What was entered: the payload as JSON (None: that of the job), and why it is refused.

    `fields`: those of the form, with their problems. `problem`: what concerns no single field.
    """

    payload: str | None
    fields: Sequence[Field] = ()
    problem: str | None = None

    @property
    def is_refused(self) -> bool:
        """Return whether something cannot be used."""
        return self.problem is not None or any(one.problem is not None for one in self.fields)


class PayloadSchema:
    """The JSON Schema of a job's payload. `redaction` names the fields that are secret."""

    def __init__(self, schema: Schema | None, redaction: Redaction) -> None:
        self._schema = schema
        self._redaction = redaction

    def fields(self) -> list[Field]:
        """Return the fields of the form, the required ones first.

        None: the payload is entered as JSON.
        """
        root = _resolved(self._schema or {}, self._schema or {})
        properties = root.get("properties")
        if root.get("type") != "object" or not isinstance(properties, dict):
            return []
        if len(properties) > MOST_FIELDS or problem_of(self._schema) is not None:
            return []
        required = [name for name in root.get("required", ()) if name in properties]
        # The ledger does not keep the order of properties.
        others = sorted(properties.keys() - set(required))
        return [
            replace(self._field(name, properties[name]), required=name in required)
            for name in (*required, *others)
        ]

    def read_json(self, text: str) -> Entered:
        """Return the payload that was entered as JSON. No text is the payload of the job."""
        if not text:
            return Entered(None)
        try:
            value = parsed(text)
        except BadValueError as error:
            return Entered(None, problem=f"The payload is not JSON: {error}.")
        # The text itself, whose numbers may have more digits than those of Python.
        problems = [
            f"{'.'.join(map(str, error.absolute_path)) or 'The payload'}: {self._reason(error)}"
            for error in self._errors(value)
        ]
        return Entered(text, problem="; ".join(problems[:5]) or None)

    def read_fields(self, given: Mapping[str, str]) -> Entered:
        """Return the payload of these entries by name. Without any it is the payload of the job."""
        fields = {one.name: one for one in self.fields()}
        if unknown := given.keys() - fields.keys():
            text = f"The job has another schema now, without {', '.join(sorted(unknown))}."
            return Entered(
                None, list(fields.values()), f"{text} Check the fields, and run it again."
            )
        fields = {name: replace(one, given=given.get(name, "")) for name, one in fields.items()}
        if not any(one.given for one in fields.values()):
            return Entered(None, list(fields.values()))
        payload: dict[str, Any] = {}
        for name, one in fields.items():
            try:
                if one.given:
                    payload[name] = _value(one)
                elif one.required and one.nullable:
                    payload[name] = None
                elif one.required:
                    raise BadValueError("is required")
            except BadValueError as error:
                fields[name] = replace(one, problem=str(error))
        problem = None
        if not any(one.problem for one in fields.values()):
            for wrong in self._errors(payload):
                name = str(wrong.absolute_path[0]) if wrong.absolute_path else ""
                if name in fields:
                    fields[name] = replace(fields[name], problem=self._reason(wrong))
                else:
                    problem = self._reason(wrong)
        text = json.dumps(payload, ensure_ascii=False)
        if problem is not None or any(one.problem for one in fields.values()):
            fields = {name: self._repeated_field(one) for name, one in fields.items()}
        return Entered(text, list(fields.values()), problem)

    def _repeated_field(self, one: Field) -> Field:
        if one.kind != "json" or not one.given or one.secret:
            return one
        shown, had_hidden = self.repeated(one.given)
        again = AGAIN if had_hidden else None
        problem = f"{one.problem}. {AGAIN}" if again and one.problem else one.problem or again
        return replace(one, given=shown, problem=problem)

    def _field(self, name: str, part: Any) -> Field:
        nullable, part = _without_null(_resolved(part, self._schema or {}), self._schema or {})
        secret = self._redaction.hides(name)
        description, default = part.get("description"), None
        if "default" in part and part["default"] is not None and not secret:
            default = json.dumps(self._redaction.shown(part["default"]), ensure_ascii=False)
        kind = _kind(part)
        if kind == "choice" and (secret or self._redaction.finds(_permitted(part))):
            # The choices would be shown.
            kind = "string" if all(isinstance(x, str) for x in _permitted(part)) else "json"
        return Field(
            name, kind, nullable=nullable, secret=secret and kind != "boolean",
            description=description if isinstance(description, str) else None, default=default,
            choices=_choices(part) if kind == "choice" else (),
        )  # fmt: skip

    def _errors(self, value: Any) -> Iterator[ValidationError]:
        """Yield what the schema refuses. An invalid one refuses nothing, which the form states."""
        if self._schema is None or problem_of(self._schema) is not None:
            return
        kind = validator_for(self._schema, default=Draft202012Validator)
        # An empty registry: otherwise a `$ref` would be fetched from the network.
        validator = kind(self._schema, registry=Registry(), format_checker=kind.FORMAT_CHECKER)
        try:
            yield from validator.iter_errors(value)
        except (Unresolvable, RecursionError) as error:
            remedy = "correct the schema, or use `cronledger trigger`, which does not apply it"
            yield ValidationError(f"the schema cannot be applied ({_short(error)}); {remedy}")

    def _reason(self, error: ValidationError) -> str:
        branches = [one for one in error.context or () if one.validator_value != "null"]
        if error.validator in ("anyOf", "oneOf") and len(branches) == 1:
            return self._reason(branches[0])
        if self._is_secret(error):
            return f"is refused by `{error.validator}` of the schema"
        return _short(error.message)

    def _is_secret(self, error: ValidationError) -> bool:
        """Return whether the message may quote a hidden value of the payload or the schema."""
        if any(isinstance(x, str) and self._redaction.hides(x) for x in error.absolute_path):
            return True
        return error.validator not in _NAMING and (
            self._redaction.finds(error.instance) or self._redaction.finds(error.validator_value)
        )

    def repeated(self, text: str) -> tuple[str, bool]:
        """Return JSON that was entered with null in place of hidden values, and whether it had any.

        What is not JSON is returned as it is.
        """
        try:
            value = parsed(text)
            if not self._redaction.finds(value):
                return text, False
            return json.dumps(self._redaction.shown(value, None), ensure_ascii=False), True
        except BadValueError:
            return text, False
        except RecursionError:
            return "", True


def problem_of(schema: Schema | None) -> str | None:
    """Return why the schema of a payload cannot be used, or None."""
    if schema is None:
        return None
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except (SchemaError, RecursionError, re.error) as error:
        return f"The schema of the payload is invalid: {_short(getattr(error, 'message', error))}"
    return None


def parsed(text: str) -> Any:
    """Return the value of JSON text. Raises BadValueError, which has the place of the mistake."""

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        place = f"in line {error.lineno}, column {error.colno}"
        raise BadValueError(f"{error.msg} {place}") from None
    except (ValueError, RecursionError) as error:
        raise BadValueError(str(error)) from None


def _short(text: object) -> str:
    shown = str(text)
    return shown if len(shown) <= LONGEST_REASON else f"{shown[:LONGEST_REASON]}…"


# --- the schema ----------------------------------------------------------------------------------


def _resolved(part: Any, root: Schema) -> dict[str, Any]:
    """Return a part of a schema with its local reference, which it may extend."""
    found = part if isinstance(part, dict) else {}
    for _ in range(MOST_REFERENCES):
        inner = found.get("allOf")
        if isinstance(inner, list) and len(inner) == 1 and isinstance(inner[0], dict):
            found = {**inner[0], **{key: x for key, x in found.items() if key != "allOf"}}
        reference = found.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
            return found
        target = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
        if not isinstance(target, dict):
            return found
        found = {**target, **{key: x for key, x in found.items() if key != "$ref"}}
    return found


def _without_null(part: dict[str, Any], root: Schema) -> tuple[bool, dict[str, Any]]:
    """Return whether null is permitted, and the schema of the other values."""
    kinds = part.get("type")
    if isinstance(kinds, list) and len(kinds) == 2 and "null" in kinds:
        (kind,) = [one for one in kinds if one != "null"] or ["null"]
        return True, {**part, "type": kind}
    for name in ("anyOf", "oneOf"):
        branches = part.get(name)
        if isinstance(branches, list) and len(branches) == 2 and _NULL in branches:
            (other,) = [one for one in branches if one != _NULL] or [_NULL]
            rest = {key: x for key, x in part.items() if key != name}
            return True, {**_resolved(other, root), **rest}
    return False, part


_KINDS: Mapping[tuple[str, str], Kind] = {
    ("string", "date"): "date", ("string", "date-time"): "date-time", ("string", ""): "string",
    ("integer", ""): "integer", ("number", ""): "number", ("boolean", ""): "boolean",
}  # fmt: skip


def _kind(part: dict[str, Any]) -> Kind:
    if "const" in part or (isinstance(part.get("enum"), list) and part["enum"]):
        return "choice"
    kind, form = (x if isinstance(x, str) else "" for x in (part.get("type"), part.get("format")))
    return _KINDS.get((kind, form)) or _KINDS.get((kind, "")) or "json"


def _permitted(part: dict[str, Any]) -> list[Any]:
    return [part["const"]] if "const" in part else list(part["enum"])


def _choices(part: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (json.dumps(value), value if isinstance(value, str) else json.dumps(value))
        for value in _permitted(part)
    ]


# --- what was entered ----------------------------------------------------------------------------


def _value(field: Field) -> Any:
    """Return the value of what was entered. Raises BadValueError."""
    if field.kind == "choice":
        return _choice(field)
    return _READERS[field.kind](field.given)


def _whole(text: str) -> int:
    if re.fullmatch(r"-?[0-9]+", text) and len(text) <= LONGEST_NUMBER:
        return int(text)
    raise BadValueError("is not a whole number; write digits only")


def _number(text: str) -> int | float:
    try:
        return _whole(text)
    except BadValueError:
        pass
    if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", text) and isfinite(float(text)):
        return float(text)
    raise BadValueError("is not a number; write it as 2.5 or 1e-3")


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise BadValueError("is neither true nor false")
    return text == "true"


def _choice(field: Field) -> Any:
    if field.given not in {value for value, _ in field.choices}:
        raise BadValueError(f"is not one of {', '.join(words for _, words in field.choices)}")
    return json.loads(field.given)


def _date(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise BadValueError("is not a date; write it as 2026-11-22") from None


def _instant(text: str) -> str:
    try:
        found = datetime.fromisoformat(text)
        return iso(found if found.tzinfo is not None else found.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise BadValueError("is not an instant; write it as 2026-11-22T03:00") from None


def _json(text: str) -> Any:
    try:
        return parsed(text)
    except BadValueError as error:
        # The text of the mistake names its place, and no part of what was entered.
        raise BadValueError(f"is not JSON: {error}") from None


_READERS: Mapping[Kind, Callable[[str], Any]] = {
    "string": str, "integer": lambda text: _whole(text.strip()),
    "number": lambda text: _number(text.strip()), "boolean": _boolean,
    "date": lambda text: _date(text.strip()), "date-time": lambda text: _instant(text.strip()),
    "json": _json,
}  # fmt: skip

"""The JSON Schema of `cronledger.toml`, from the models of jobs, targets and settings.

Editors complete and check the file by it. The dialect is draft 7, which all of them know. There,
the keys beside a `$ref` are ignored, so definitions of pydantic are written in place. Rules about
several values, such as those of `rules.validation`, are not part of it.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from cronledger.rules import durations
from cronledger.rules.calendar_spec import CalendarSpec
from cronledger.rules.channels import KINDS, ONE_OR_SEVERAL
from cronledger.rules.limits import NAME_PATTERN
from cronledger.rules.model import RUN_BY_OTHERS, Handler, Job
from cronledger.rules.notify import CHANNEL_PATTERN
from cronledger.rules.targets import TARGETS
from cronledger.settings import TABLE, Settings, key_of
from cronledger.sources.toml import DEFAULTS, POLICIES, SURROUNDINGS, WORK

FILE = "cronledger.schema.json"
DIRECTIVE = f"#:schema ./{FILE}"
"""The first line of a file that an editor checks by the schema beside it."""
_OBSERVED = {"required": ["observed"], "properties": {"observed": {"const": True}}}
"""A job that only another scheduler can run."""
_DROPPED = {"title", "writeOnly"}
_FORMATS = ("path", "password")
_BOUNDS = {"ge": "minimum", "le": "maximum"}
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
"""A link to a page of the documentation, which an editor cannot follow."""

Schema = dict[str, Any]


def document() -> Schema:
    """Return the schema of a whole file."""
    policies = {name: one for name, one in _properties(Job).items() if name in POLICIES}
    policies["notify"] = _notify(policies["notify"])
    for gate in ("requires", "after"):
        policies[gate] = _requirements(policies[gate])
    settings = {key_of(name): one for name, one in _properties(Settings).items()}
    defaults = {name: policies[name] for name in policies if name in DEFAULTS}
    jobs = {
        "type": "object",
        "description": "The jobs, each in a table [jobs.NAME].",
        "propertyNames": {"pattern": NAME_PATTERN},
        "additionalProperties": {"$ref": "#/definitions/job"},
    }
    channels = {
        "type": "object",
        "description": "Where alerts are sent: the channels, each in a table [channels.NAME].",
        "propertyNames": {"pattern": CHANNEL_PATTERN},
        "additionalProperties": {"$ref": "#/definitions/channel"},
    }
    calendars = {
        "type": "object",
        "description": "The calendars that jobs name, each in a table [calendars.NAME].",
        "propertyNames": {"pattern": NAME_PATTERN},
        "additionalProperties": {"$ref": "#/definitions/calendar"},
    }
    tables = {
        TABLE: _table("Settings of the runner. CRONLEDGER_* variables override them.", settings),
        "calendars": calendars,
        "channels": channels,
        "defaults": _table("Policies of every job that does not override them.", defaults),
        "jobs": jobs,
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "cronledger.toml",
        **_table("Jobs of cronledger, and settings of the runner.", tables),
        "definitions": {
            "calendar": _calendar(),
            "channel": _channel(),
            "duration": _duration(),
            "job": _job(policies),
        },
    }


def _table(description: str, properties: Mapping[str, Schema]) -> Schema:
    return {
        "type": "object",
        "description": description,
        "properties": dict(properties),
        "additionalProperties": False,
    }


def _duration() -> Schema:
    description = "A duration, such as 90s, 5m, 1h30m, 2d, 1w, 500ms or PT1H30M (ISO 8601)."
    return {"type": "string", "description": description, "pattern": durations.PATTERN}


def _calendar() -> Schema:
    properties = _properties(CalendarSpec)
    for name in ("holidays", "ics"):
        properties[name] = _one_or_several(properties[name], properties[name]["items"])
    return _table("One calendar: the days on which its jobs do not fire.", properties)


def _channel() -> Schema:
    return {"oneOf": [_channel_of(kind, model) for kind, model in KINDS.items()]}


def _channel_of(kind: str, model: type[BaseModel]) -> Schema:
    """Return the schema of a channel of this kind. One value may stand for a list."""
    schema = _schema(model)
    properties = schema["properties"]
    for name in properties.keys() & ONE_OR_SEVERAL:
        listed = properties[name]
        properties[name] = _one_or_several({**listed, "minItems": 1}, listed["items"])
    properties["kind"] = {"const": kind}
    return {**schema, "required": ["kind", *schema.get("required", ())]}


def _one_or_several(listed: Schema, item: Schema) -> Schema:
    """Return the schema of a list, or of one of its items instead."""
    several = {key: listed[key] for key in listed if key in ("minItems", "maxItems")}
    found = {key: listed[key] for key in listed if key in ("description", "default")}
    return found | {"anyOf": [item, several | {"type": "array", "items": item}]}


def _notify(rules: Schema) -> Schema:
    """Return the schema of `notify`, in which the name of a channel stands for a rule."""
    name: Schema = {"type": "string", "pattern": CHANNEL_PATTERN}
    return _one_or_several(rules, {"anyOf": [name, rules["items"]]})


def _requirements(required: Schema) -> Schema:
    """Return the schema of `requires` or `after`, in which the name of a job stands for a table."""
    name: Schema = {"type": "string", "pattern": NAME_PATTERN}
    return _one_or_several(required, {"anyOf": [name, required["items"]]})


def _job(policies: Mapping[str, Schema]) -> Schema:
    named = dict(policies["calendar"])
    description = named.pop("description") + " false: none, although [defaults] names one."
    calendar = {"description": description, "anyOf": [named, {"const": False}]}
    handlers = [{"required": [key]} for key in WORK if key != "observed"]
    properties = {**_work(), **policies, "calendar": calendar}
    return {
        **_table("One job: its policies, and what it runs.", properties),
        "oneOf": [*handlers, {**_OBSERVED, "not": {"anyOf": handlers}}],
        "dependencies": {name: ["command"] for name in SURROUNDINGS},
    }


def _work() -> dict[str, Schema]:
    """Return the schemas of the keys that name what a job runs."""
    work: dict[str, Schema] = {}
    for key in WORK:
        whole = _schema(TARGETS[Handler(key)])
        one = {"const": True} if Handler(key) in RUN_BY_OTHERS else whole["properties"].get(key)
        work[key] = (one or whole) | {"description": whole["description"]}
    command = _properties(TARGETS[Handler.COMMAND])
    return work | {name: command[name] for name in SURROUNDINGS}


def _properties(model: type[BaseModel]) -> dict[str, Schema]:
    """Return the schemas of the fields by name, as a file writes them, with their defaults."""
    properties: dict[str, Schema] = _schema(model)["properties"]
    return properties


def _schema(model: type[BaseModel]) -> Schema:
    return _Generator(by_alias=False).generate_inner(model.__pydantic_core_schema__)


class _Generator(GenerateJsonSchema):
    """Generates draft 7 without references, null and titles. Defaults are as a file writes them."""

    def generate_inner(self, schema: Any) -> Schema:
        # A schema with a name would become a definition.
        found = super().generate_inner({key: schema[key] for key in schema if key != "ref"})
        dropped = _DROPPED if "allOf" not in found else {*_DROPPED, *_BOUNDS}
        found = {_BOUNDS.get(key, key): found[key] for key in found if key not in dropped}
        if found.get("format") in _FORMATS:
            del found["format"]
        if "description" in found:
            found["description"] = " ".join(_LINK.sub(r"\1", found["description"]).split())
        if "patternProperties" in found:
            found.setdefault("additionalProperties", False)
        return found

    def definitions_schema(self, schema: Any) -> Schema:
        self._named = {one["ref"]: one for one in schema["definitions"]}
        return self.generate_inner(schema["schema"])

    def definition_ref_schema(self, schema: Any) -> Schema:
        return self.generate_inner(self._named[schema["schema_ref"]])

    def nullable_schema(self, schema: Any) -> Schema:
        return self.generate_inner(schema["schema"])

    def timedelta_schema(self, schema: object) -> Schema:
        return {"allOf": [{"$ref": "#/definitions/duration"}]}

    def default_schema(self, schema: Any) -> Schema:
        found = self.generate_inner(schema["schema"])
        make = schema.get("default_factory", type(None))
        if not isinstance(make, type):  # its value differs between machines
            return found
        default = schema["default"] if "default" in schema else make()
        return found if default is None else {**found, "default": _written(default)}

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def _written(value: object) -> Any:
    match value:
        case timedelta():
            return durations.format(value)
        case Enum():
            return value.value
        case Path():
            return str(value)
        case tuple():
            return [_written(item) for item in value]
        case _:
            return value

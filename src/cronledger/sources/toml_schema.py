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
from pydantic.fields import FieldInfo

from cronledger.rules import durations
from cronledger.rules.channels import KINDS, ONE_OR_SEVERAL
from cronledger.rules.model import NAME_PATTERN, Handler, Job
from cronledger.rules.notify import CHANNEL_PATTERN
from cronledger.rules.targets import TARGETS
from cronledger.settings import TABLE, Settings, key_of
from cronledger.sources.toml import DEFAULTS, POLICIES, SURROUNDINGS, WORK

FILE = "cronledger.schema.json"
DIRECTIVE = f"#:schema ./{FILE}"
"""The first line of a file that an editor checks by the schema beside it."""
_DURATION = {"$ref": "#/definitions/duration"}
_DROPPED = ("title", "writeOnly", "$defs")
_BOUNDS = {"ge": "minimum", "le": "maximum"}
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
"""A link to a page of the documentation, which an editor cannot follow."""

Schema = dict[str, Any]


def document() -> Schema:
    """Return the schema of a whole file."""
    policies = {name: _property(Job, name) for name in Job.model_fields if name in POLICIES}
    policies["notify"] = _notify(policies["notify"])
    settings = {key_of(name): _property(Settings, name) for name in Settings.model_fields}
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
    tables = {
        TABLE: _table("Settings of the runner. CRONLEDGER_* variables override them.", settings),
        "channels": channels,
        "defaults": _table("Policies of every job that does not override them.", defaults),
        "jobs": jobs,
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "cronledger.toml",
        **_table("Jobs of cronledger, and settings of the runner.", tables),
        "definitions": {"channel": _channel(), "duration": _duration(), "job": _job(policies)},
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


def _channel() -> Schema:
    return {"oneOf": [_channel_of(kind, model) for kind, model in KINDS.items()]}


def _channel_of(kind: str, model: type[BaseModel]) -> Schema:
    """Return the schema of a channel of this kind. One value may stand for a list."""
    properties = {name: _property(model, name) for name in model.model_fields}
    for name, schema in properties.items():
        if name in ONE_OR_SEVERAL:
            properties[name] = _one_or_several({**schema, "minItems": 1}, schema["items"])
    properties["kind"] = {"const": kind}
    required = [name for name, field in model.model_fields.items() if field.is_required()]
    description = " ".join((model.__doc__ or "").split())
    return {**_table(description, properties), "required": ["kind", *required]}


def _one_or_several(listed: Schema, item: Schema) -> Schema:
    """Return the schema of a list, or of one of its items instead."""
    several = {key: listed[key] for key in listed.keys() & {"minItems", "maxItems"}}
    found = {key: listed[key] for key in listed.keys() & {"description", "default"}}
    return found | {"anyOf": [item, several | {"type": "array", "items": item}]}


def _notify(rules: Schema) -> Schema:
    """Return the schema of `notify`, in which the name of a channel stands for a rule."""
    name: Schema = {"type": "string", "pattern": CHANNEL_PATTERN}
    properties = rules["items"]["properties"]
    properties["remind"].pop("default")
    properties["on"].pop("default", None)
    return _one_or_several(rules, {"anyOf": [name, rules["items"]]})


def _job(policies: Mapping[str, Schema]) -> Schema:
    return {
        **_table("One job: its policies, and what it runs.", {**_work(), **policies}),
        "oneOf": [{"required": [key]} for key in WORK],
        "dependencies": {name: ["command"] for name in SURROUNDINGS},
    }


def _work() -> dict[str, Schema]:
    """Return the schemas of the keys that name what a job runs."""
    work: dict[str, Schema] = {}
    for key in WORK:
        target = TARGETS[Handler(key)]
        description = " ".join((target.__doc__ or "").split())
        if Handler(key) is Handler.EXTERNAL:
            schema: Schema = {"const": True}
        elif key in target.model_fields:
            schema = _property(target, key)
        else:
            whole = target.model_json_schema()
            properties = {name: _property(target, name) for name in target.model_fields}
            schema = {**_table(description, properties), "required": whole["required"]}
        work[key] = {**schema, "description": description}
    command = TARGETS[Handler.COMMAND]
    return work | {name: _property(command, name) for name in SURROUNDINGS}


def _property(model: type[BaseModel], name: str) -> Schema:
    """Return the schema of one field as a file writes it, with its default."""
    whole = model.model_json_schema(by_alias=False)
    schema = _in_place(whole["properties"][name], whole.get("$defs", {}))
    schema.pop("default", None)
    if (default := _default(model.model_fields[name])) is not None:
        schema["default"] = default
    return schema


def _default(field: FieldInfo) -> Any:
    """Return the default as a file writes it, or None if it has none there."""
    if field.is_required():
        return None
    return _written(field.get_default(call_default_factory=True, validated_data={}))


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


def _in_place(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """Return a schema of pydantic in draft 7, without references, and without null."""
    found: Schema = {}
    if "$ref" in schema:
        found = _in_place(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if schema.get("format") == "duration":
        found |= {"allOf": [_DURATION]}
        schema = {key: schema[key] for key in schema.keys() & {"description"}}
    for key, value in schema.items():
        if key == "description":
            found[key] = _LINK.sub(r"\1", value)
        elif key in _BOUNDS:
            found[_BOUNDS[key]] = value
        elif key in ("anyOf", "oneOf"):
            given = [_in_place(one, definitions) for one in value if one != {"type": "null"}]
            found |= given[0] if len(given) == 1 else {key: given}
        elif key in ("properties", "patternProperties"):
            found[key] = {name: _in_place(one, definitions) for name, one in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            found[key] = _in_place(value, definitions)
        elif key not in (*_DROPPED, "$ref") and (key, value) not in (
            ("format", "path"),
            ("format", "password"),
        ):
            found[key] = value
    if "patternProperties" in found:
        found.setdefault("additionalProperties", False)
    return found

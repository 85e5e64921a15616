"""What differs between two definitions of a job, for people."""

import json
from collections.abc import Mapping
from typing import Any

from cronledger.web.redaction import HIDDEN, Redaction

Change = tuple[str, object, object]
"""A name, its value before, and its value after. Objects are JSON, with the changed keys only."""


def changes(
    before: Mapping[str, Any], after: Mapping[str, Any], redaction: Redaction
) -> list[Change]:
    """Return the changed names in alphabetical order."""
    return [
        (name, *_values(name, before.get(name), after.get(name), redaction))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _values(name: str, old: Any, new: Any, redaction: Redaction) -> tuple[object, object]:
    if name == "payload_schema":
        old, new = redaction.schema(old), redaction.schema(new)
        if old == new:
            return HIDDEN, HIDDEN
    if isinstance(old, dict) and isinstance(new, dict):
        old, new = _changed(old, new)
    return _text(old), _text(new)


def _changed(old: dict[str, Any], new: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keys that differ, in any depth."""
    before = {key: part for key, part in old.items() if key not in new or new[key] != part}
    after = {key: part for key, part in new.items() if key not in old or old[key] != part}
    for key in before.keys() & after.keys():
        if isinstance(before[key], dict) and isinstance(after[key], dict):
            before[key], after[key] = _changed(before[key], after[key])
    return before, after


def _text(value: Any) -> object:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return value

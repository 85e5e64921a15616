"""JSON from the ledger for people: without the values of fields that the settings name."""

import json
from collections.abc import Collection, Iterator
from typing import Any

from cronledger.rules import storable

HIDDEN = "(hidden)"
VALUES = ("const", "default", "enum", "example", "examples")
"""Keywords of a JSON Schema that contain values."""
UNREADABLE = "This JSON exceeds the limits of what the page reads. psql shows it."


class Redaction:
    """Hides the values of fields with one of `names`, in any depth and without regard to case."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(name.casefold() for name in names)

    def hides(self, name: str) -> bool:
        """Return whether the values of fields with this name are hidden."""
        return name.casefold() in self._names

    def text(self, stored: str | None) -> str | None:
        """Return JSON of the ledger as indented text. None stays None."""
        if stored is None:
            return None
        try:
            value = json.loads(stored)
        except (ValueError, RecursionError):
            return UNREADABLE
        if storable.beyond_readers(value):
            return UNREADABLE
        return json.dumps(self.shown(value), indent=2, ensure_ascii=False)

    def finds(self, value: Any) -> bool:
        """Return whether a hidden name occurs in a JSON value, in any depth."""
        waiting = [value]
        while waiting:
            part = waiting.pop()
            if isinstance(part, dict):
                if any(self.hides(key) for key in part):
                    return True
                waiting += part.values()
            elif isinstance(part, list):
                waiting += part
        return False

    def shown(self, value: Any, instead: str | None = HIDDEN) -> Any:
        """Return a JSON value with `instead` in place of the hidden ones. Raises RecursionError."""
        if isinstance(value, dict):
            return {
                key: instead if self.hides(key) else self.shown(part, instead)
                for key, part in value.items()
            }
        return [self.shown(part, instead) for part in value] if isinstance(value, list) else value

    def schema(self, schema: Any) -> Any:
        """Return a JSON Schema without the values that it has for hidden properties.

        Definitions to which hidden properties refer have none either. Raises RecursionError.
        """
        hidden: set[str] = set()
        # A definition that is hidden may itself refer to others.
        while more := set(self._references(schema, hidden, "#", is_hidden=False)) - hidden:
            hidden |= more
        return self._schema(schema, hidden, "#", is_hidden=False)

    def _references(
        self, part: Any, hidden: Collection[str], place: str, *, is_hidden: bool
    ) -> Iterator[str]:
        is_hidden = is_hidden or place in hidden
        if isinstance(part, dict):
            if is_hidden and isinstance(part.get("$ref"), str):
                yield part["$ref"]
            for key, inner in part.items():
                yield from self._references(
                    inner, hidden, _below(place, key), is_hidden=is_hidden or self.hides(key)
                )
        elif isinstance(part, list):
            for number, inner in enumerate(part):
                yield from self._references(inner, hidden, f"{place}/{number}", is_hidden=is_hidden)

    def _schema(self, part: Any, hidden: Collection[str], place: str, *, is_hidden: bool) -> Any:
        is_hidden = is_hidden or place in hidden
        if isinstance(part, list):
            return [
                self._schema(inner, hidden, f"{place}/{number}", is_hidden=is_hidden)
                for number, inner in enumerate(part)
            ]
        if not isinstance(part, dict):
            return part
        found = {}
        for key, inner in part.items():
            if key in VALUES:
                found[key] = HIDDEN if is_hidden else self.shown(inner)
            elif self.hides(key) and not isinstance(inner, dict | list | bool):
                found[key] = HIDDEN
            else:
                found[key] = self._schema(
                    inner, hidden, _below(place, key), is_hidden=is_hidden or self.hides(key)
                )
        return found


def _below(place: str, key: str) -> str:
    """Return the JSON pointer of a key."""
    return f"{place}/{key.replace('~', '~0').replace('/', '~1')}"

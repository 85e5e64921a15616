"""JSON from the ledger for people: without the values of fields that the settings name."""

import json
from collections.abc import Collection
from typing import Any

from cronledger.rules import storable

HIDDEN = "(hidden)"
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
        return json.dumps(self._shown(value), indent=2, ensure_ascii=False)

    def _shown(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: HIDDEN if self.hides(key) else self._shown(part) for key, part in value.items()
            }
        return [self._shown(part) for part in value] if isinstance(value, list) else value

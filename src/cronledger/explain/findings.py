"""What a check of `doctor` is given, and what it answers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import psycopg
from psycopg.rows import dict_row

from cronledger.ledger import queries
from cronledger.ledger.database import transaction
from cronledger.settings import Settings

Severity = Literal["ok", "warning", "problem", "unchecked"]
"""`unchecked`: the check could not be made, so nothing is known; it does not pass."""

PATIENCE = "10s"
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; with `unchecked` why it could not be made. `remedy`: what to do about
    it; None when it is `ok`."""

    check: str
    severity: Severity
    found: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """A ledger, and the host from which it is looked at. `connection` is in autocommit mode, and no
    other thread's. `fingerprint`: versions of what this host reads schedules by."""

    connection: psycopg.Connection
    settings: Settings
    url: str = field(repr=False)
    fingerprint: Mapping[str, str] = field(default_factory=dict)

    def rows(self, name: str, **params: object) -> list[dict[str, Any]]:
        """The rows of a statement of `ledger/sql`. Raises psycopg.Error."""
        # In a transaction: behind a pooler the settings hold no longer.
        with transaction(self.connection), self.connection.cursor(row_factory=dict_row) as c:
            c.execute("SELECT set_config('statement_timeout', %s, true)", [PATIENCE])
            return queries.run(c, name, self.settings.schema_name, params).fetchall()

    def row(self, name: str, **params: object) -> dict[str, Any]:
        """The only row of a statement of `ledger/sql`. Raises psycopg.Error."""
        (found,) = self.rows(name, **params)
        return found


Check = Callable[[DoctorContext], Iterable[Finding]]


def named(names: Iterable[object]) -> str:
    """The first few of `names`, and how many more there are."""
    every = [str(name) for name in names]
    more = f" and {len(every) - MOST_NAMED} more" if len(every) > MOST_NAMED else ""
    return ", ".join(every[:MOST_NAMED]) + more

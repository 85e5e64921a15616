"""The context and the findings of the checks of `doctor`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import wraps
from typing import Any, Literal, ParamSpec

import psycopg

from cronledger.ledger import queries
from cronledger.ledger.transactions import transaction
from cronledger.rules import durations
from cronledger.settings import Settings

Severity = Literal["ok", "warning", "problem", "unchecked"]
"""`unchecked`: the check could not be made, which counts as a failure."""

PATIENCE = "10s"
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one check, or, if it is `unchecked`, why the check could not be made.

    `remedy` is None if the finding is `ok`.
    """

    check: str
    severity: Severity
    found: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """A ledger, as seen from this host.

    `connection` is in autocommit mode, and no other thread uses it. `fingerprint`: the versions of
    the libraries with which this host reads schedules. `patience`: the longest time of a statement.
    """

    connection: psycopg.Connection
    settings: Settings
    url: str = field(repr=False)
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    patience: str = PATIENCE

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction, because behind a pooler the settings end with it."""
        with transaction(self.connection):
            self.connection.execute(
                "SELECT set_config('statement_timeout', %s, true)", [self.patience]
            )
            yield

    def rows(self, name: str, **params: object) -> list[dict[str, Any]]:
        """Return the rows of a statement of `ledger/sql`. Raises psycopg.Error."""
        with self.transaction():
            return queries.rows(self.connection, name, self.settings.schema_name, params)

    def row(self, name: str, **params: object) -> dict[str, Any]:
        """Return the only row of a statement of `ledger/sql`. Raises psycopg.Error."""
        (found,) = self.rows(name, **params)
        return found


Check = Callable[[DoctorContext], Iterable[Finding]]
P = ParamSpec("P")


def otherwise_ok(
    found: str,
) -> Callable[[Callable[P, Iterable[Finding]]], Callable[P, Iterator[Finding]]]:
    """Add the finding `ok` with this text to a check that yields no finding."""

    def decorate(check: Callable[P, Iterable[Finding]]) -> Callable[P, Iterator[Finding]]:
        @wraps(check)
        def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[Finding]:
            fine = True
            for finding in check(*args, **kwargs):
                fine = False
                yield finding
            if fine:
                yield Finding(check.__name__, "ok", found)

        return call

    return decorate


def named(names: Iterable[object]) -> str:
    """Return the first few `names`, and the number of the others."""
    every = [str(name) for name in names]
    more = f" and {len(every) - MOST_NAMED} more" if len(every) > MOST_NAMED else ""
    return ", ".join(every[:MOST_NAMED]) + more


def about(length: timedelta) -> str:
    """Return a length of time in days, or in hours, minutes and seconds if it is short."""
    if abs(length) >= timedelta(days=2):
        return f"{length.days} days"
    sign = "-" if length < timedelta() else ""
    return sign + durations.format(timedelta(seconds=round(abs(length).total_seconds())))

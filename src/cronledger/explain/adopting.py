"""The instant at which a job moves from one scheduler to another: between two plan_times."""

from dataclasses import dataclass
from datetime import datetime

from cronledger.audit.dates import read_dates
from cronledger.audit.walk import Definition, neighbours
from cronledger.ledger.reports import Reports, Row
from cronledger.rules.model import ScopeKey
from cronledger.rules.plan_times import TICK
from cronledger.rules.reports import TOLERANCE

_SCOPES = 100
"""Scopes whose plan_times are searched: `H` gives each scope its own."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A job moves `at` an instant after its plan_time `last` (None: none) and before `first`."""

    last: datetime | None
    first: datetime

    @property
    def at(self) -> datetime:
        """The instant that decides the side of a run, with room for clocks that are fast."""
        if self.last is None:
            return self.first - TOLERANCE
        return self.first - min(TOLERANCE, (self.first - self.last) / 2)


def switch(reports: Reports, definition: Row, at: datetime) -> Switch | None:
    """Return the switch between the plan_times before `at` and those from `at` on, in all scopes.

    `definition`: the row that `Reports.job` returns. None: the job has no plan_time from `at` on.
    Raises ValueError if the schedule is invalid, and psycopg.Error.
    """
    calendars = read_dates(reports.calendar_rows([definition]))
    plain, kind = Definition.from_row(definition, calendars), definition["scope_kind"]
    scopes = [row["scope_id"] for row in reports.scopes(definition["name"], _SCOPES)] or [kind]
    found = [
        neighbours(plain, ScopeKey(definition["name"], kind, scope), at - TICK) for scope in scopes
    ]
    first = min((following for _, following in found if following is not None), default=None)
    if first is None:
        return None
    return Switch(max((before for before, _ in found if before is not None), default=None), first)

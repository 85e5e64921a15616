"""The instant at which a job moves from one scheduler to another: between two plan_times."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from cronledger.audit.dates import read_dates
from cronledger.audit.walk import Definition, neighbours
from cronledger.ledger.calls import Call, adopt, preview_adopt
from cronledger.ledger.reports import Reports, Row
from cronledger.rules.instants import iso
from cronledger.rules.model import ScopeKey
from cronledger.rules.plan_times import TICK
from cronledger.rules.reports import TOLERANCE

_SCOPES = 100
"""Scopes whose plan_times are searched: `H` gives each scope its own."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """What an adoption did or would do; with `back`, what a return did or would do.

    `at`: the instant of the switch. `last`: the last plan_time before it, which the old side still
    fires; None: no such plan_time is to come. `first`: the first plan_time of the new side.
    `moves`: whether the job moves; otherwise the side that fires it now keeps it. `withdrawn`: the
    instants of the future switches that are withdrawn: with `back` the adoption and the return
    after it, otherwise the return. `revision`: that of the job; None in a preview.
    """

    job: str
    back: bool
    at: datetime
    last: datetime | None
    first: datetime
    moves: bool
    withdrawn: Sequence[datetime]
    revision: int | None

    def __str__(self) -> str:
        old, new = ("replicas", "the other scheduler")[:: 1 if self.back else -1]
        switches = ("its adoption", "its return to the other scheduler")[0 if self.back else 1 :]
        named = " and ".join(
            f"{switch} at {iso(at)}" for switch, at in zip(switches, self.withdrawn, strict=False)
        )
        withdrawn = f"{named} {'are' if len(self.withdrawn) > 1 else 'is'} withdrawn"
        if not self.moves:
            return f"{self.job}: {withdrawn}, and {new} keep{'s' * self.back} firing it"
        text = f"{self.job}: {new} fire{'s' * self.back} it from {iso(self.first)} on"
        if self.last is not None:
            text += f"; the last plan_time of {old} is {iso(self.last)}"
        return f"{text}; {withdrawn}" if self.withdrawn else text

    @property
    def warning(self) -> str | None:
        """Why this instant may be unsuitable, or None."""
        if self.last is not None or (not self.moves and self.first < self.withdrawn[0]):
            return None
        return (
            f"no plan_time lies before {iso(self.first)}, so the wrappers of the other scheduler "
            "learn of this change only then"
        )


def adoption(
    reports: Reports,
    definition: Row,
    at: datetime,
    *,
    back: bool,
    reason: str | None = None,
    preview: bool = False,
) -> Call[Adoption]:
    """Return the call that moves a job between the plan_times around an instant.

    `definition`: the row that `Reports.job` returns. With `preview`, the call changes nothing.
    Raises ValueError if the job has no plan_time from `at` on or its schedule is invalid, and
    psycopg.Error.
    """
    name, found, now = definition["name"], switch(reports, definition, at), reports.now()
    if found is None:
        raise ValueError(f"it has no plan_time from {iso(at)} on; use an earlier instant")
    last = None if found.last is None or found.last <= now else found.last

    def decode(rows: list[Row]) -> Adoption:
        return Adoption(name, back, found.at, last, found.first, **{"revision": None, **rows[0]})

    made: Call[Any] = (
        preview_adopt(name, found.at, back) if preview else adopt(name, found.at, back, reason)
    )
    return replace(made, decode=decode)


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

"""The firings of a job in the ledger."""

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from cronledger.rules.calendars import CalendarKey, Calendars
from cronledger.rules.firings import Firings, later
from cronledger.rules.model import ScopeKey, unchecked
from cronledger.rules.plans import PlannedSkip

if TYPE_CHECKING:  # a schedule by itself needs no database
    from cronledger.ledger.reports import Reports, Row


def firings_of(
    reports: "Reports", definition: "Row", after: datetime, scope: str | None = None
) -> Firings:
    """Return the firings of a job after an instant.

    `definition`: the row that `Reports.job` returns, which has a schedule. `scope` decides `H`;
    None is the first scope of the job. Raises CronError if the schedule is invalid, and
    psycopg.Error.
    """
    if scope is None:
        scopes = reports.scopes(definition["name"], 1)
        scope = scopes[0]["scope_id"] if scopes else definition["scope_kind"]
    found = firings_in(definition, scope, after, reports.calendars([definition]))
    key = ScopeKey(definition["name"], definition["scope_kind"], scope)
    skips = reports.planned_skips_at(key, after, later(after))
    return replace(found, planned_skips=list(map(planned_skip, skips)))


def planned_skip(row: "Row") -> PlannedSkip:
    """Return the planned skip of a row of `list_planned_skips_at.sql`."""
    return PlannedSkip(row["from_plan_time"], row["covered_through"], row["reason"])


def firings_in(
    definition: "Row", scope: str, after: datetime, calendars: Calendars,
    through: datetime | None = None,
) -> Firings:  # fmt: skip
    """Return the firings of a scope, without the planned skips.

    `calendars`: among them the one that the job names. Raises CronError.
    """
    calendar = calendars.get(CalendarKey(definition["calendar"], definition["calendar_revision"]))
    return Firings.of(unchecked(definition), after, through, scope=scope, calendar=calendar)

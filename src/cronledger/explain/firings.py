"""The firings of a job in the ledger."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cronledger.audit import walk
from cronledger.audit.walk import Definition
from cronledger.rules.calendars import CalendarKey, Calendars
from cronledger.rules.cron import Firing
from cronledger.rules.firings import Firings, later, note
from cronledger.rules.model import ScopeKey, unchecked
from cronledger.rules.plan_times import due_at
from cronledger.rules.plans import PlannedSkip

if TYPE_CHECKING:  # a schedule by itself needs no database
    from cronledger.ledger.reports import Reports, Row

AnyRow = Mapping[str, Any]


def firings_of(
    reports: "Reports", definition: "Row", after: datetime, scope: str | None = None
) -> Firings:
    """Return the firings of a job after an instant.

    `definition`: the row that `Reports.job` returns, which has a schedule. `scope` decides `H`;
    None is the first scope of the job. Raises CronError if the schedule is invalid, and
    psycopg.Error.
    """
    key = scope_of(reports, definition, scope)
    found = firings_in(definition, key.scope_id, after, reports.calendars([definition]))
    skips = reports.planned_skips_at(key, after, later(after))
    return replace(found, planned_skips=list(map(planned_skip, skips)))


def scope_of(reports: "Reports", definition: "Row", scope: str | None) -> ScopeKey:
    """Return a scope of a job by its id; None: the first one. Raises psycopg.Error."""
    if scope is None:
        scopes = reports.scopes(definition["name"], 1)
        scope = scopes[0]["scope_id"] if scopes else definition["scope_kind"]
    return ScopeKey(definition["name"], definition["scope_kind"], scope)


def pause_at(pauses: Iterable[AnyRow], due: datetime) -> AnyRow | None:
    """Return the pause that is named for what is due then, or None: the one that ends last.

    `pauses`: of `list_job_pauses.sql`.
    """
    found = (
        row for row in pauses
        if row["from_at"] <= due and (row["until_at"] is None or due <= row["until_at"])
    )  # fmt: skip
    return max(
        found, default=None,
        key=lambda row: (row["until_at"] is None, row["until_at"] or due, -row["id"]),
    )  # fmt: skip


def skipped_by(row: AnyRow) -> str:
    """Return which planned skip it is, and who planned it why."""
    return f"planned skip {row['id']} of {row['requested_by']} ({row['reason']}) skips it"


def obstacle(
    definition: Definition, key: ScopeKey, plan_time: datetime, skips: Iterable[AnyRow],
    pauses: Iterable[AnyRow],
) -> str | None:  # fmt: skip
    """Return what will skip a plan_time to come, as far as it is known, or None.

    `skips`: of `planned_skip_status`. `pauses`: of `list_job_pauses.sql`.
    """
    dates = definition.dates
    if dates and (name := walk.excluded_day(definition, key, plan_time)) is not None:
        return f"the calendar {dates.name} excludes this day ({name})"
    for skip in skips:
        if skip["from_plan_time"] <= plan_time <= skip["covered_through"]:
            return skipped_by(skip)
    if (pause := pause_at(pauses, walk.due_at(definition, key, plan_time))) is not None:
        reason = f" ({pause['reason']})" if pause["reason"] else ""
        return f"pause {pause['id']} of {pause['requested_by']}{reason} skips it"
    return None


def noted(definition: "Row", key: ScopeKey, pauses: "Sequence[Row]") -> Callable[[Firing], str]:
    """Return a function that returns the note of a firing, with the pause that will skip it."""
    job = unchecked(definition)

    def text(firing: Firing) -> str:
        runs = firing.excluded is None and firing.skipped is None
        pause = pause_at(pauses, due_at(job, key, firing.plan_time)) if runs else None
        notes = [note(firing)]
        if pause is not None:
            reason = f": {pause['reason']}" if pause["reason"] else ""
            notes.append(f"skipped by pause {pause['id']}{reason}")
        return "; ".join(filter(None, notes))

    return text


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

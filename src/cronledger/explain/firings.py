"""The next firings of a schedule, or of a job in the ledger."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cronledger.rules import cron
from cronledger.rules.calendars import Calendar
from cronledger.rules.cron import Cron, Firing
from cronledger.rules.firings import later, with_excluded_days
from cronledger.rules.model import PlannedSkip, ScopeKey, hashed_as

TICK = timedelta(microseconds=1)

if TYPE_CHECKING:  # a schedule by itself needs no database
    from cronledger.ledger.reports import Reports, Row


@dataclass(frozen=True, slots=True)
class FiringRange:
    """The firings of `spec` in (`after`, `ends_at`] that are not before `starts_at`.

    `calendar`: the one of the job. Firings on dates that it excludes do not run, and those after
    its end are not known. `planned_skips`: by `first`; the firings that they contain do not run.
    """

    spec: Cron
    after: datetime
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    calendar: Calendar | None = None
    planned_skips: Sequence[PlannedSkip] = ()

    def __iter__(self) -> Iterator[Firing]:
        """Return the firings of the next 100 years that run, in their order."""
        after, through = self._interval
        for skip in self.planned_skips:
            if after < skip.last:
                yield from self.spec.included.firings(after, min(through, skip.first - TICK))
                after = skip.last
        yield from self.spec.included.firings(after, through)

    def with_skipped(self) -> Iterator[Firing]:
        """Return the same firings, and between them those that planned skips contain.

        Of each date that the calendar excludes, there is only the first firing.
        """
        for firing in with_excluded_days(self.spec, *self._interval):
            at = firing.plan_time
            found = (one.reason for one in self.planned_skips if one.first <= at <= one.last)
            yield replace(firing, skipped=next(found, None))

    @property
    def ends_with_calendar(self) -> bool:
        """Whether the schedule names firings that are not known because the calendar ends."""
        unknown = self.spec.unknown
        return unknown is not None and next(unknown.firings(*self._interval), None) is not None

    @property
    def _interval(self) -> tuple[datetime, datetime]:
        return self.interval(later(self.after))

    def interval(self, through: datetime) -> tuple[datetime, datetime]:
        """Return (after, through] without what is before `starts_at` or after `ends_at`."""
        after = self.after
        if self.starts_at is not None and self.starts_at > after:
            after = self.starts_at - TICK
        return after, min(through, self.ends_at or through)


def firings_of(
    reports: "Reports", definition: "Row", after: datetime, scope: str | None = None
) -> FiringRange:
    """Return the firings of a job after an instant.

    `definition`: the row that `Reports.job` returns, which has a schedule. `scope` decides `H`;
    None is the first scope of the job. A pause or a retirement of the job is not considered. Raises
    CronError if the schedule is invalid, and psycopg.Error.
    """
    if scope is None:
        scopes = reports.scopes(definition["name"], 1)
        scope = scopes[0]["scope_id"] if scopes else definition["scope_kind"]
    calendars = reports.calendars([definition])
    found = firings_in(definition, scope, after, next(iter(calendars.values()), None))
    key = ScopeKey(definition["name"], definition["scope_kind"], scope)
    return replace(found, planned_skips=planned_skips_of(reports, key, after))


def planned_skips_of(reports: "Reports", key: ScopeKey, after: datetime) -> list[PlannedSkip]:
    """Return the planned skips of a scope that reach beyond an instant. Raises psycopg.Error."""
    return [planned_skip(row) for row in reports.planned_skips_at(key, after, later(after))]


def planned_skip(row: "Row") -> PlannedSkip:
    """Return the planned skip of a row of `list_planned_skips_at.sql`."""
    return PlannedSkip(row["from_plan_time"], row["covered_through"], row["reason"])


def firings_in(
    definition: "Row", scope: str, after: datetime, calendar: Calendar | None
) -> FiringRange:
    """Return the firings of a scope after an instant, as `firings_of` does.

    `calendar`: the one that the job names.
    """
    if definition["calendar"] is not None and calendar is None:
        problem = "the ledger does not have the dates of this calendar"
        raise cron.CronError("calendar", definition["calendar"], problem, "call set_calendar()")
    key = ScopeKey(definition["name"], definition["scope_kind"], scope)
    key = hashed_as(definition["after"], key)
    spec = cron.parse(
        definition["schedule"],
        timezone=definition["timezone"],
        day_or=definition["day_or"],
        dst_gap=definition["dst_gap"],
        dst_fold=definition["dst_fold"],
        job=key.job_name,
        scope=f"{key.scope_kind}/{key.scope_id}",
        calendar=calendar,
        on_excluded=definition["on_excluded"],
    )
    return FiringRange(spec, after, definition["starts_at"], definition["ends_at"], calendar)

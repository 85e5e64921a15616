"""The firings of a schedule, and what clock changes, calendars and operators do to them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Self

from cronledger.rules.calendars import Calendar, ExcludedDate
from cronledger.rules.cron import ClockChange, Cron, Firing
from cronledger.rules.model import GLOBAL, Job, ScopeKey
from cronledger.rules.plan_times import TICK, cron_of, lifetime, unskipped
from cronledger.rules.plans import PlannedSkip

SHOWN_DATES = 3
HORIZON = timedelta(days=365 * 100)
_EFFECTS = {
    "shifted": ("is skipped", "are skipped", "it fires right after the gap"),
    "skipped": ("is skipped", "are skipped", "it does not fire"),
    "once": ("occurs twice", "occur twice", "it fires the first time"),
    "twice": ("occurs twice", "occur twice", "it fires both times"),
}


@dataclass(frozen=True, slots=True)
class Firings:
    """The firings of a schedule in (after, through]. `cron` None: there are none.

    Those on dates that `calendar` excludes do not run, and those after its end are not known.
    `planned_skips`: by `first`; the firings that they contain do not run either. A pause or a
    retirement is not considered.
    """

    cron: Cron | None
    after: datetime
    through: datetime
    calendar: Calendar | None = None
    planned_skips: Sequence[PlannedSkip] = ()

    @classmethod
    def of(
        cls,
        job: Job,
        after: datetime,
        through: datetime | None = None,
        *,
        scope: str | None = None,
        calendar: Calendar | None = None,
        planned_skips: Sequence[PlannedSkip] = (),
    ) -> Self:
        """Return the firings of a scope of `job` within starts_at and ends_at.

        `through`: by default 100 years after `after`. `scope` decides `H`; it is by default the
        first one. `calendar`: the one that the job names. Raises CronError.
        """
        first = (job.scopes or (GLOBAL,))[0]
        cron = cron_of(job, ScopeKey(job.name, job.scope_kind, scope or first), calendar)
        interval = lifetime(job, after, through or later(after))
        return cls(cron, *interval, calendar, planned_skips)

    def __iter__(self) -> Iterator[Firing]:
        """Yield the firings that run, in their order."""
        for cron, start, end in self._parts():
            yield from cron.firings(start, end)

    def plan_times(self) -> Iterator[datetime]:
        """Yield the plan_times of the firings that run, which is faster."""
        for cron, start, end in self._parts():
            yield from cron.plan_times(start, end)

    def count(self) -> int:
        """Return the number of firings that run. It enumerates at most their days."""
        return sum(cron.count(start, end) for cron, start, end in self._parts())

    def with_skipped(self) -> Iterator[Firing]:
        """Yield the firings that run, and between them those that planned skips contain.

        Of each date that the calendar excludes, there is only the first firing.
        """
        for firing in self._with_excluded_days():
            at = firing.plan_time
            found = (one.reason for one in self.planned_skips if one.first <= at <= one.last)
            yield replace(firing, skipped=next(found, None))

    def clock_changes(self) -> Iterator[ClockChange]:
        """Yield the clock changes that affect the firings, as `Cron` does."""
        if self.cron is not None:
            yield from self.cron.included.clock_changes(self.after, self.through)

    def within(self, after: datetime, through: datetime) -> Self:
        """Return those of the firings that are in (after, through]."""
        return replace(self, after=max(after, self.after), through=min(through, self.through))

    def nearest(self, instant: datetime) -> list[datetime]:
        """Return the last plan_time at or before `instant` and the first one after it, if any."""
        low, high = self.after, instant
        while self.within(low, high).count() > 1:
            middle = low + (high - low) / 2
            low, high = (middle, high) if self.within(middle, high).count() else (low, middle)
        following = self.within(instant, self.through).plan_times()
        return [*self.within(low, high).plan_times(), *islice(following, 1)]

    @property
    def ends_with_calendar(self) -> bool:
        """Whether the schedule names firings that are not known because the calendar ends."""
        unknown = None if self.cron is None else self.cron.unknown
        return unknown is not None and any(unknown.plan_times(self.after, self.through))

    def _parts(self) -> Iterator[tuple[Cron, datetime, datetime]]:
        """Yield the intervals whose firings run, each with the schedule."""
        if self.cron is not None:
            for part in unskipped(self.planned_skips, self.after, self.through):
                yield self.cron.included, *part

    def _with_excluded_days(self) -> Iterator[Firing]:
        """Yield the firings, and between them the first of each date that a calendar excludes."""
        if self.cron is None:
            return
        after = self.after
        for firing in self.cron.included.firings(after, self.through):
            yield from self.cron.excluded_days(after, firing.plan_time - TICK)
            yield firing
            after = firing.plan_time
        yield from self.cron.excluded_days(after, self.through)


def later(instant: datetime, length: timedelta = HORIZON) -> datetime:
    """Return `instant + length`, or the last instant that a datetime can hold."""
    try:
        return instant + length
    except OverflowError:
        return datetime.max.replace(tzinfo=instant.tzinfo)


def note(firing: Firing) -> str:
    """Return what a clock change or a calendar does to `firing`, for people; empty if nothing."""
    notes = []
    if firing.excluded is not None:
        notes.append(f"skipped: {firing.excluded.name} (calendar {firing.excluded.calendar})")
    elif firing.skipped is not None:
        notes.append(f"skipped by an operator: {firing.skipped}")
    if firing.moved_from:
        notes.append(f"moved from {_dates(firing.moved_from)}")
    if firing.shifted:
        notes.append("shifted: a clock change skips its local time")
    if firing.folded:
        which = "second" if firing.local.fold else "first"
        notes.append(f"folded: its local time occurs twice, this is the {which}")
    return "; ".join(notes)


def _dates(dates: Sequence[ExcludedDate]) -> str:
    texts = [f"{one.date} ({one.name})" for one in dates[:SHOWN_DATES]]
    if len(dates) > SHOWN_DATES:
        texts[-1:] = [f"{len(dates) - SHOWN_DATES + 1} more dates"]
    *others, last = texts
    return f"{', '.join(others)} and {last}" if others else last


def change_note(change: ClockChange) -> str:
    """Return what a clock change does to a schedule, for people."""
    one, several, effect = _EFFECTS[change.effect]
    times = f"{change.first:%H:%M:%S}".removesuffix(":00")
    if change.count == 1:
        return f"clock change: {times} {one}; {effect}"
    return f"clock change: {change.count} local times from {times} on {several}; {effect}"


def change_local(change: ClockChange) -> datetime:
    """Return the local time at which a clock change is shown: that of the firing that it affects.

    A time that occurs twice fires before the clocks go back. A time that is skipped is shown at
    the first instant after the gap.
    """
    if change.effect in ("once", "twice"):
        return change.first.replace(tzinfo=change.local.tzinfo)
    return change.local


def local_text(local: datetime) -> str:
    """Return a local time with its weekday and offset: `Sun 2026-03-29 03:00:00+02:00`."""
    return f"{local:%a} {local.isoformat(sep=' ')}"

"""What an edit of a calendar changes: its dates, and the firings of the jobs that use it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from cronledger.rules import zones
from cronledger.rules.calendars import Calendar, date_of, day_of
from cronledger.rules.cron import CronError
from cronledger.rules.firings import Firings
from cronledger.rules.model import Job

_TICK = timedelta(microseconds=1)
_YEARS = 2
"""The current year and the following ones in which firings are compared."""


@dataclass(frozen=True, slots=True)
class DateChange:
    """One date, and the name of the excluded day before and after; None: it is included."""

    date: date
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class CalendarChange:
    """One calendar that changes. `before`: None if it is new. `dates`: those that differ."""

    before: Calendar | None
    after: Calendar
    dates: tuple[DateChange, ...]


@dataclass(frozen=True, slots=True)
class FiringChange:
    """The firings of a job in one year that only the old, and that only the new calendar has."""

    year: int
    disappear: int
    appear: int


@dataclass(frozen=True, slots=True)
class Dated:
    """A job, and the calendar that it names; None: it names none."""

    job: Job
    calendar: Calendar | None

    def firings(self, after: datetime, through: datetime | None = None) -> Firings:
        """Return the firings of the first scope, as `Firings.of` does."""
        return Firings.of(self.job, after, through, calendar=self.calendar)


def date_changes(before: Calendar, after: Calendar) -> Iterator[DateChange]:
    """Yield the dates that both calendars know, and that differ, in order."""
    first, through = max(before.first, after.first), min(before.through, after.through)
    for day in sorted(before.excluded.keys() | after.excluded.keys()):
        names = before.excluded_day(day), after.excluded_day(day)
        if first <= day <= through and names[0] != names[1]:
            yield DateChange(day, *names)


def without_calendar(job: Job) -> Dated:
    """Return the job as it would be without a calendar."""
    return Dated(job.model_copy(update={"calendar": None, "on_excluded": "skip"}), None)


def firing_changes(before: Dated, after: Dated, since: datetime) -> tuple[FiringChange, ...]:
    """Return the years, up to the one after `since`, in which the firings after `since` differ.

    `before` and `after` differ only in the calendar, and in what happens on its excluded dates.
    Dates that one of the calendars does not know are left out. The firings are those of the first
    scope. A job whose schedule is invalid has none.
    """
    try:
        firings = before.firings(since), after.firings(since)
    except CronError:
        return ()
    if before.job.schedule is None or after.job.schedule is None:
        return ()
    zone = zones.named(after.job.timezone)
    today = since.astimezone(zone).date()
    last = min(
        [date(today.year + _YEARS - 1, 12, 31)]
        + [x.calendar.through for x in (before, after) if x.calendar is not None]
    )
    disappear: Counter[int] = Counter()
    appear: Counter[int] = Counter()
    for day in _affected(before, after, day_of(today), day_of(last)):
        begin, end = (
            datetime.combine(date_of(x), time(), zone).astimezone(UTC) - _TICK
            for x in (day, day + 1)
        )
        old, new = (one.within(begin, end).count() for one in firings)
        disappear[date_of(day).year] += max(0, old - new)
        appear[date_of(day).year] += max(0, new - old)
    return tuple(
        FiringChange(year, disappear[year], appear[year])
        for year in range(today.year, today.year + _YEARS)
        if disappear[year] or appear[year]
    )


def _affected(before: Dated, after: Dated, low: int, high: int) -> list[int]:
    """Return the days in [low, high] on which firings may differ, in order.

    These are the days that one calendar alone excludes, and those to which their firings move.
    """
    calendars = [x.calendar for x in (before, after) if x.calendar is not None]
    moves_alike = before.job.on_excluded == after.job.on_excluded
    found: set[int] = set()
    for day in {day for calendar in calendars for day in calendar.excluded}:
        everywhere = len(calendars) == 2 and all(x.excluded_day(day) for x in calendars)
        if everywhere and moves_alike:
            continue
        number = day_of(day)
        found.add(number)
        for calendar in calendars:
            found.update((calendar.included_until(number - 1), calendar.included_from(number + 1)))
    return sorted(day for day in found if low <= day <= high)


def in_words(change: FiringChange, on_excluded: str) -> str:
    """Return a change for people: `7 firings of 2027 move`."""
    if on_excluded == "skip":
        parts = []
        if change.disappear:
            parts.append(f"{_firings(change.disappear)} of {change.year} will be skipped")
        if change.appear:
            parts.append(f"{_firings(change.appear)} of {change.year} will no longer be skipped")
        return ", and ".join(parts)
    # Of two firings that meet, one disappears.
    count = max(change.disappear, change.appear)
    return f"{_firings(count)} of {change.year} {'moves' if count == 1 else 'move'}"


def _firings(count: int) -> str:
    return f"{count} firing{'' if count == 1 else 's'}"

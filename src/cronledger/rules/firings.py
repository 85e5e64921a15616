"""The firings of declared jobs, without a ledger, and what clock changes do to them."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from cronledger.rules.calendars import Calendar, ExcludedDate
from cronledger.rules.cron import ClockChange, Cron, Firing
from cronledger.rules.model import GLOBAL, Job, ScopeKey
from cronledger.rules.timeline import TICK, cron_of, lifetime

SHOWN_DATES = 3
HORIZON = timedelta(days=365 * 100)
_EFFECTS = {
    "shifted": ("is skipped", "are skipped", "it fires right after the gap"),
    "skipped": ("is skipped", "are skipped", "it does not fire"),
    "once": ("occurs twice", "occur twice", "it fires the first time"),
    "twice": ("occurs twice", "occur twice", "it fires both times"),
}


def cron_in(job: Job, scope: str | None = None, calendar: Calendar | None = None) -> Cron | None:
    """Return the schedule of `job` in this scope, by default its first one; None without one.

    The scope decides `H`. `calendar`: the one that the job names. Firings on dates that it excludes
    are left out. Raises CronError, also without the calendar.
    """
    first = (job.scopes or (GLOBAL,))[0]
    cron = cron_of(job, ScopeKey(job.name, job.scope_kind, scope or first), calendar)
    return None if cron is None else cron.included


def firings(
    job: Job,
    after: datetime,
    through: datetime,
    scope: str | None = None,
    calendar: Calendar | None = None,
) -> Iterator[Firing]:
    """Yield the firings of `cron_in` in (after, through], within starts_at and ends_at.

    Raises CronError.
    """
    cron = cron_in(job, scope, calendar)
    return iter(()) if cron is None else cron.firings(*lifetime(job, after, through))


def clock_changes(
    job: Job,
    after: datetime,
    through: datetime,
    scope: str | None = None,
    calendar: Calendar | None = None,
) -> Iterator[ClockChange]:
    """Yield the clock changes in (after, through] that affect firings of `job`, as `Cron` does.

    Raises CronError.
    """
    cron = cron_in(job, scope, calendar)
    return iter(()) if cron is None else cron.clock_changes(*lifetime(job, after, through))


def with_excluded_days(cron: Cron, after: datetime, through: datetime) -> Iterator[Firing]:
    """Yield the firings in (after, through] that a calendar does not exclude, and between them the
    first firing of each date that it excludes.
    """
    for firing in cron.included.firings(after, through):
        yield from cron.excluded_days(after, firing.plan_time - TICK)
        yield firing
        after = firing.plan_time
    yield from cron.excluded_days(after, through)


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

"""Assertions on schedules, for tests of users that need no database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, time, timedelta
from typing import Any, Self
from zoneinfo import ZoneInfo

from cronledger.declaring.handles import JobFunction, job_of
from cronledger.rules import zones
from cronledger.rules.calendar_spec import CalendarSpec
from cronledger.rules.calendars import Calendar
from cronledger.rules.cron import Firing, parse
from cronledger.rules.firings import Firings, change_local, change_note, local_text, note
from cronledger.rules.model import Job
from cronledger.rules.plan_times import TICK
from cronledger.rules.problems import nearest
from cronledger.sources.calendars import written_out

SHOWN = 10
_DAY = timedelta(days=1)


def assert_fires(
    what: Job | JobFunction[..., Any] | str,
    on: date | str | None = None,
    *,
    year: int | None = None,
    at: Sequence[str] | None = None,
    times: int | None = None,
    zone: str | None = None,
    scope: str | None = None,
    calendars: Mapping[str, CalendarSpec] | None = None,
) -> list[Firing]:
    """Assert when a job fires on a day or in a year, and return its firings there.

    Args:
        what: A function that `@app.job` declared, a job such as `app.jobs["report"]`, or a schedule
            such as `30 2 * * *`.
        on: The day: a date, or text such as `2027-03-28`.
        year: The year, instead of a day.
        at: The local times at which it fires, and no others: `02:30` or `02:30:15`, in a year with
            their date (`2027-03-28T03:00`). An offset tells apart a time that occurs twice:
            `02:30+01:00`.
        times: How often it fires. Without `at` and `times` it fires at least once.
        zone: Time zone of `on`, `year` and `at`, and of a schedule that is given as text. Default:
            that of the job, or UTC.
        scope: The scope, which decides `H`. Default: the first scope of the job.
        calendars: Those of the App (`app.calendars`), which a job with a calendar needs. Their
            dates are those that an apply in the year of the day would write.

    Raises:
        AssertionError: It fires at other times. The message has the clock changes that affect it.
        ValueError: An argument, or the schedule, is invalid.
        ConfigurationError: The calendar is invalid, or is over.
        TypeError: An argument has another type, or `what` is a function of several jobs.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    job = what if isinstance(what, Job) else job_of(what)
    local = zones.named(zone or ("UTC" if job is None else job.timezone))
    period = _Period.of(on, year, local)
    if job is None:
        schedule = _of_text(what, local, scope, period)
    else:
        schedule = _of_job(job, local, scope, calendars or {}, period)
    firings = list(schedule.firings)
    expected = None if at is None else _local_times(at, period)
    failures: list[str] = []
    if times is not None and len(firings) != times:
        failures.append(f"fires {_times(len(firings))} {period}, not {_times(times)}")
    if expected is not None and (differences := _differences(expected, firings, schedule.zone)):
        failures.append("\n".join([f"does not fire as expected {period}", *differences]))
    if at is None and times is None and not firings:
        failures.append(f"does not fire {period}")
    if failures:
        lines = [f"{schedule.text} {failure}" for failure in failures]
        raise AssertionError("\n".join([*lines, *schedule.clock_changes()]))
    return firings


@dataclass(frozen=True, slots=True)
class _Period:
    """The instants in (after, through], which are a day or a year of a local clock."""

    after: datetime
    through: datetime
    words: str
    year: int
    day: date | None

    @classmethod
    def of(cls, on: date | str | None, year: int | None, zone: ZoneInfo) -> Self:
        if (on is None) == (year is None):
            raise ValueError(f"on={on!r}, year={year!r}: give exactly one of them")
        if year is None:
            return cls._of_days(day := _day(on), day, f"on {day.isoformat()}", zone)
        if not isinstance(year, int):
            raise TypeError(f"year={year!r} is not a number, such as 2027")
        if not MINYEAR < year < MAXYEAR:
            raise ValueError(f"year={year!r} is out of range; use a year such as 2027")
        return cls._of_days(date(year, 1, 1), date(year, 12, 31), f"in {year}", zone)

    @classmethod
    def _of_days(cls, first: date, last: date, words: str, zone: ZoneInfo) -> Self:
        try:
            start, stop = (
                datetime.combine(one, time(), zone).astimezone(UTC) - TICK
                for one in (first, last + _DAY)
            )
        except OverflowError:
            raise ValueError(f"on={first.isoformat()} is out of range; use another day") from None
        return cls(start, stop, words, first.year, first if first == last else None)

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True, slots=True)
class _Schedule:
    """What fires in the period. `zone`: of the local times."""

    text: str
    firings: Firings
    zone: ZoneInfo

    def clock_changes(self) -> list[str]:
        """Return a line for each clock change in the period that affects the schedule."""
        return [
            f"  {local_text(change_local(change))}  {change_note(change)}"
            for change in self.firings.clock_changes()
        ]


def _of_job(
    job: Job, zone: ZoneInfo, scope: str | None, calendars: Mapping[str, CalendarSpec],
    period: _Period,
) -> _Schedule:  # fmt: skip
    if scope is not None and job.scopes is not None and scope not in job.scopes:
        raise ValueError(
            f"scope={scope!r} is not a scope of job {job.name!r}; {nearest(scope, job.scopes)}"
        )
    text = f"job {job.name!r} ({job.schedule or 'without a schedule'}, {job.timezone})"
    calendar = _calendar(job, calendars, period.year)
    firings = Firings.of(job, period.after, period.through, scope=scope, calendar=calendar)
    return _Schedule(text, firings, zone)


def _of_text(what: object, zone: ZoneInfo, scope: str | None, period: _Period) -> _Schedule:
    if not isinstance(what, str):
        raise TypeError(
            f"{what!r} is neither a job nor a schedule; pass a function that @app.job declared, "
            "app.jobs[NAME], or text such as '30 2 * * *'"
        )
    cron = parse(what, timezone=zone.key, scope=scope or "")
    firings = Firings(cron, period.after, period.through)
    return _Schedule(f"{what!r} ({zone.key})", firings, zone)


def _calendar(job: Job, calendars: Mapping[str, CalendarSpec], year: int) -> Calendar | None:
    """Return the calendar of `job` as an apply in this year would write it, or None."""
    if job.calendar is None:
        return None
    spec = calendars.get(job.calendar)
    if spec is None:
        raise ValueError(
            f"job {job.name!r} has the calendar {job.calendar!r}, which is not in `calendars`; "
            "pass calendars=app.calendars of the App that declares it"
        )
    calendar, _ = written_out(job.calendar, spec, date(year, 1, 1))
    return calendar


@dataclass(frozen=True, slots=True)
class _LocalTime:
    """A time of `at`. A day or an offset of None matches any."""

    text: str
    day: date | None
    clock: time
    offset: timedelta | None

    @classmethod
    def read(cls, text: str, period: _Period) -> Self:
        """Return the time that `text` names. Raises ValueError."""
        try:
            moment = time.fromisoformat(text)
            day = None
        except ValueError:
            try:
                whole = datetime.fromisoformat(text)
            except ValueError:
                raise ValueError(
                    f"at={text!r} is not a local time; write it like 02:30 or 2027-03-28T03:00"
                ) from None
            moment, day = whole.timetz(), whole.date()
        if day is None and period.day is None:
            raise ValueError(f"at={text!r} has no date; in a year write it like 2027-03-28T03:00")
        offset = datetime.combine(day or period.day or date.min, moment).utcoffset()
        return cls(text, day, moment.replace(tzinfo=None), offset)

    def matches(self, local: datetime) -> bool:
        return (
            self.day in (None, local.date())
            and self.clock == local.time()
            and self.offset in (None, local.utcoffset())
        )


def _local_times(at: Sequence[str], period: _Period) -> list[_LocalTime]:
    if isinstance(at, str):
        raise TypeError(f"at={at!r} is not a list; write at=[{at!r}]")
    return [_LocalTime.read(text, period) for text in at]


def _differences(
    expected: Sequence[_LocalTime], firings: Sequence[Firing], zone: ZoneInfo
) -> list[str]:
    """Return a line for each expected time without a firing, and for each firing too many."""
    left = list(firings)
    missing = []
    # Those with an offset first, because the others match either of two equal local times.
    for one in sorted(expected, key=lambda one: one.offset is None):
        found = next((x for x in left if one.matches(x.plan_time.astimezone(zone))), None)
        if found is None:
            missing.append(f"  not at {one.text}")
        else:
            left.remove(found)
    extra = [
        f"  but at {local_text(x.plan_time.astimezone(zone))}  {note(x)}".rstrip() for x in left
    ]
    if len(extra) > SHOWN:
        extra[SHOWN:] = [f"  and at {len(extra) - SHOWN} more times"]
    return missing + extra


def _day(on: date | str | None) -> date:
    if isinstance(on, datetime) or not isinstance(on, date | str):
        raise TypeError(f"on={on!r} is neither a date nor text such as '2027-03-28'")
    if isinstance(on, date):
        return on
    try:
        return date.fromisoformat(on)
    except ValueError:
        raise ValueError(f"on={on!r} is not a day; write it like 2027-03-28") from None


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"

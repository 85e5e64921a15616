"""The jobs of an APScheduler 3 as jobs that call the same functions.

`jobs_of` reads a scheduler object, `jobs_of_export` the file that `scheduler.export_jobs()` wrote,
and `convert` makes the jobs.
"""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cronledger.rules import durations
from cronledger.sources import foreign_values as values
from cronledger.sources import observed
from cronledger.sources.foreign_values import NoEquivalentError
from cronledger.sources.imported import Entry, Import, Note, Source, Table, slug_of, unique

HANDLER = "cronledger.contrib.apscheduler:call"

HEADER = (
    f'python = "{HANDLER}": each job calls its function with the same arguments, in a thread, and '
    "awaits it if it is async. The replica needs the program, and not APScheduler.",
    "run_timeout is 1h: a run that takes longer is stopped. APScheduler lets it run.",
    "In a time zone whose clocks change, the firings of these two days of the year may differ from "
    "those of APScheduler: a time that does not exist fires right after the gap, and a time that "
    "occurs twice fires once.",
)

OBSERVED_HEADER = (
    *observed.HEADER,
    "The comment of each job is an item for the mapping that the program passes to "
    "cronledger.contrib.apscheduler.observe, which reports the runs of these jobs.",
)

_FIELDS = {"month": (1, 12), "hour": (0, 23), "minute": (0, 59), "second": (0, 59)}
_DEFAULT_GRACE = 1


@dataclass(frozen=True, slots=True)
class ForeignJob:
    """A job of a scheduler, with the values that its scheduler would use."""

    id: str
    name: str
    function: str | None
    is_async: bool
    trigger: Any
    args: Any
    kwargs: Any
    executor: str
    grace: Any
    coalesce: Any
    max_instances: Any
    is_paused: bool


def jobs_of(scheduler: Any) -> list[ForeignJob]:
    """Return the jobs of a scheduler, those that wait for its start if it has not started."""
    defaults = {"misfire_grace_time": _DEFAULT_GRACE, "coalesce": True, "max_instances": 1}
    defaults |= {
        name: value for name, value in vars(scheduler).get("_job_defaults", {}).items()
        if name in defaults
    }  # fmt: skip
    return [_job(job, defaults) for job in scheduler.get_jobs()]


def jobs_of_export(path: str) -> list[ForeignJob]:
    """Return the jobs of a file of `scheduler.export_jobs()`.

    It contains pickled objects, so reading it executes code. Raises any exception of that code.
    """
    from apscheduler.schedulers.background import BackgroundScheduler  # noqa: PLC0415 - an extra

    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.start(paused=True)
    try:
        scheduler.import_jobs(path)
        return jobs_of(scheduler)
    finally:
        scheduler.shutdown(wait=False)


def _job(job: Any, defaults: dict[str, Any]) -> ForeignJob:
    def value(name: str) -> Any:
        return getattr(job, name, defaults.get(name))

    function = getattr(job, "func", None)
    return ForeignJob(
        id=str(value("id")), name=str(value("name")), function=value("func_ref"),
        is_async=inspect.iscoroutinefunction(function), trigger=value("trigger"),
        args=value("args"), kwargs=value("kwargs"), executor=str(value("executor") or "default"),
        grace=value("misfire_grace_time"), coalesce=value("coalesce"),
        max_instances=value("max_instances"),
        is_paused=getattr(job, "next_run_time", job) is None,
    )  # fmt: skip


def convert(
    source: str, jobs: Sequence[ForeignJob], now: datetime, *, observe: bool = False
) -> Import:
    """Return the jobs. `now`: a date trigger before it has no firing.

    `observe`: the scheduler keeps them, and its program reports their runs.
    """
    taken: set[str] = set()
    entries = tuple(_entry(job, now, taken, observe) for job in jobs)
    header = OBSERVED_HEADER if observe else HEADER
    return Import("apscheduler", (Source(source, entries),), header)


def _entry(job: ForeignJob, now: datetime, taken: set[str], observe: bool) -> Entry:
    notes: list[Note] = []
    jobs: dict[str, Table] = {}
    slug = slug_of(job.id)
    is_random = len(job.id) == 32
    if not slug or is_random:
        slug = slug_of(job.name) or "job"
    try:
        if job.is_paused:
            raise NoEquivalentError("the job is paused; resume it before the import")
        call = {} if observe else _call(job)
        of_timing: list[Note] = []
        for timing in _timings(job.trigger, now, of_timing):
            policies = _lateness(job, timing) if observe else _policies(job, timing, of_timing)
            name = unique(slug, taken)
            taken.add(name)
            jobs[name] = {**timing, **call, **policies}
        notes += of_timing if not observe else []
    except NoEquivalentError as error:
        jobs.clear()
        notes.append(Note(str(error), "dropped"))
    except Exception as error:  # noqa: BLE001 - an export may contain any object
        jobs.clear()
        notes.append(Note(f"the job is invalid: {type(error).__name__}: {error}", "dropped"))
    text = (
        f"{job.function} {values.text_of(job.args)} {values.text_of(job.kwargs)}\n"
        f"{values.text_of(job.trigger)}\nmisfire_grace_time={values.text_of(job.grace)} "
        f"coalesce={values.text_of(job.coalesce)} max_instances={values.text_of(job.max_instances)}"
    )
    wrapper = f"{job.id!r}: {next(iter(jobs))!r}" if observe and jobs else ""
    if wrapper and is_random:
        notes.append(Note(
            "the id is random: a program that adds the job again when it starts gives it another "
            "one, and then reports no runs; add the job with an id of its own", "changed",
        ))  # fmt: skip
    return Entry(job.id, text, jobs, tuple(notes), wrapper)


def _lateness(job: ForeignJob, timing: Table) -> Table:
    """Return how late the scheduler may start a run: its jitter and its misfire_grace_time."""
    grace = job.grace if isinstance(job.grace, int | float) and 0 < job.grace < 10**6 else 0
    late = durations.parse(observed.GRACE) + timedelta(seconds=int(grace))
    return {"grace": durations.format(late + durations.parse(timing.get("jitter") or "0s"))}


def _call(job: ForeignJob) -> Table:
    function = job.function
    if not isinstance(function, str) or ":" not in function or "<" in function:
        raise NoEquivalentError(
            f"the function {values.text_of(function)} has no name package.module:name; use a "
            "function of a module"
        )
    if function.startswith("__main__:"):
        raise NoEquivalentError(
            f"{function} is of the program that was started, which a replica cannot import; move "
            "the function to a module"
        )
    if not isinstance(job.args or (), list | tuple) or not isinstance(job.kwargs or {}, dict):
        raise NoEquivalentError("its arguments are not a list and a mapping")
    if not all(isinstance(name, str) for name in job.kwargs or {}):
        raise NoEquivalentError("kwargs has keys that are not names")
    call = {"function": function, "args": list(job.args or ()), "kwargs": dict(job.kwargs or {})}
    given = {name: value for name, value in call.items() if value}
    return {
        "python": f"{HANDLER}_async" if job.is_async else HANDLER,
        "payload": values.toml(given, "its call"),
        "queue": None if job.executor == "default" else slug_of(job.executor)[:200] or None,
    }


def _timings(trigger: Any, now: datetime, notes: list[Note]) -> Iterator[dict[str, Any]]:
    """Yield the keys that set the firings, more than once for an OrTrigger."""
    from apscheduler.triggers import combining, cron, date, interval  # noqa: PLC0415 - an extra

    kind = type(trigger)
    if kind is cron.CronTrigger:
        found = _cron(trigger)
    elif kind is interval.IntervalTrigger:
        found = _interval(trigger, notes)
    elif kind is date.DateTrigger:
        found = _date(trigger, now, notes)
    elif kind is combining.OrTrigger:
        notes.append(Note("a time that several of its triggers name runs once for each of them"))
        for one in trigger.triggers:
            yield from _timings(one, now, notes)
        return
    else:
        raise NoEquivalentError(
            f"{kind.__name__} has no equivalent; use fields of cron, an interval or a date, or "
            "test the date in the function"
        )
    if getattr(trigger, "jitter", None):
        found["jitter"] = _jitter(trigger.jitter, found, notes)
    yield found


def _cron(trigger: Any) -> dict[str, Any]:
    fields = {one.name: one.expressions for one in trigger.fields}
    for name in ("year", "week"):
        if str(next(one for one in trigger.fields if one.name == name)) != "*":
            raise NoEquivalentError(
                f"{name} has no equivalent; test it in the function, or use start_date and end_date"
            )
    second, minute, hour, month = (
        _numbers(fields[name], *_FIELDS[name]) for name in ("second", "minute", "hour", "month")
    )
    day, of_day = _day(fields["day"])
    weekday = _numbers(fields["day_of_week"], 0, 6, shift=1)
    if of_day != "*" and (weekday != "*" or day != "*"):
        raise NoEquivalentError(
            "weekdays of the month beside other days have no equivalent; use a job for each"
        )
    weekday = weekday if of_day == "*" else of_day
    parts = [minute, hour, day, month, weekday]
    text = " ".join(parts if second == "0" else [second, *parts])
    zone, day_or = values.zone_name(trigger.timezone), day == "*" or weekday == "*"
    values.parsed(text, zone, day_or=day_or)
    return {
        "schedule": text, "timezone": zone, "day_or": None if day_or else False,
        **values.bounds(trigger.start_date, trigger.end_date),
    }  # fmt: skip


def _numbers(expressions: Iterable[Any], low: int, high: int, *, shift: int = 0) -> str:
    """Return the field of expressions of numbers. `shift`: added, in a week that begins at 0."""
    found: set[int] = set()
    starred = False
    for one in expressions:
        first, last = getattr(one, "first", None), getattr(one, "last", None)
        starred |= first is None
        begin, end = low if first is None else first, high if last is None else last
        found.update(range(begin, min(end, high) + 1, one.step or 1))
    if shift:
        found = {(value + shift) % (high + 1) for value in found}
    return values.field(found, low, high, starred=starred)


def _day(expressions: Sequence[Any]) -> tuple[str, str]:
    """Return the day of the month, and the weekday that `2nd fri` and `last fri` name."""
    names = {type(one).__name__ for one in expressions}
    if "WeekdayPositionExpression" in names:
        if len(names) > 1:
            raise NoEquivalentError("weekdays of the month beside days have no equivalent")
        weekdays = [((one.weekday + 1) % 7, one.option_num) for one in expressions]
        return "*", ",".join(
            f"L{day}" if number == 5 else f"{day}#{number + 1}" for day, number in weekdays
        )
    numbers = [one for one in expressions if type(one).__name__ != "LastDayOfMonthExpression"]
    last = ["L"] if len(numbers) < len(expressions) else []
    return ",".join([*last, *([_numbers(numbers, 1, 31)] if numbers else [])]), "*"


def _interval(trigger: Any, notes: list[Note]) -> dict[str, Any]:
    text = values.every(trigger.interval_length)
    values.parsed(text, "UTC")
    notes.append(Note(
        f"APScheduler counts the interval from {trigger.start_date:%Y-%m-%d %H:%M:%S%z}; @every "
        "fires on a fixed grid since 1970"
    ))  # fmt: skip
    return {"schedule": text, **values.bounds(None, trigger.end_date)}


def _date(trigger: Any, now: datetime, notes: list[Note]) -> dict[str, Any]:
    at = trigger.run_date.astimezone(UTC)
    if at <= now:
        raise NoEquivalentError(f"the date {at:%Y-%m-%dT%H:%M:%SZ} has passed")
    if at.microsecond:
        at += timedelta(microseconds=1_000_000 - at.microsecond)
        notes.append(Note("a job fires at whole seconds, so its date is rounded up", "changed"))
    notes.append(Note("the job fires once; remove it afterwards"))
    text = f"{at.second} {at.minute} {at.hour} {at.day} {at.month} *"
    values.parsed(text, "UTC")
    return {"schedule": text, "starts_at": at - timedelta(seconds=1), "ends_at": at}


def _jitter(jitter: Any, found: dict[str, Any], notes: list[Note]) -> str | None:
    if not isinstance(jitter, int | float) or not 0 < jitter < 86_400 or jitter != int(jitter):
        notes.append(Note(f"jitter {jitter} is not whole seconds of a day; omitted", "changed"))
        return None
    spec = values.parsed(
        found["schedule"], found.get("timezone", "UTC"), day_or=found.get("day_or") is None
    )
    if timedelta(seconds=jitter) >= spec.shortest_period:
        notes.append(Note(
            f"jitter {jitter} is not shorter than the time between two firings; it is omitted",
            "changed",
        ))  # fmt: skip
        return None
    return f"{int(jitter)}s"


def _policies(job: ForeignJob, timing: Table, notes: list[Note]) -> Table:
    grace, many = job.grace, job.max_instances
    if grace is not None and (not isinstance(grace, int | float) or not 0 < grace < 10**9):
        raise NoEquivalentError(f"misfire_grace_time is {values.text_of(grace)}, not seconds")
    if not isinstance(many, int) or not 0 < many < 10**9:
        raise NoEquivalentError(f"max_instances is {values.text_of(many)}, not a number of runs")
    if grace == _DEFAULT_GRACE:
        grace = 60
        notes.append(Note("grace is 1 minute, and not the default of APScheduler, 1 second"))
    seconds = None if grace is None else f"{max(1, int(grace))}s"
    found: dict[str, Any] = {}
    if not job.coalesce:
        found |= {"catch_up": "all", "catch_up_window": seconds}
    elif grace is None:
        found["catch_up"] = "latest"
    else:
        found |= {"catch_up": "skip", "grace": seconds}
    if many == 1:
        found["overlap"] = "skip" if job.coalesce else "wait"
    else:
        found |= {"overlap": "allow", "max_running": many}
        notes.append(Note(f"while {many} run, another one waits; APScheduler drops it"))
    return found

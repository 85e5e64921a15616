"""The forecast of a ledger: what it holds now, what files would change, and what is assumed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cronledger.ledger.reports import ReadRows, Reports, Row
from cronledger.rules.calendar_spec import CalendarSpec
from cronledger.rules.calendars import Calendar
from cronledger.rules.deadline_texts import parse_expected
from cronledger.rules.durations import DurationError
from cronledger.rules.model import (
    GLOBAL,
    CatchUp,
    Job,
    JobState,
    Overlap,
    Revision,
    ScopeKey,
)
from cronledger.rules.simulation import Capacity, Pool, Running, Series
from cronledger.rules.timeline import EPOCH, FOREVER, NEVER, back
from cronledger.sources import source_calendars
from cronledger.sources.apply import refuse_foreign

MOST_JOBS = 10_000
MOST_SCOPES = 20_000
MOST_RUNNING = 10_000
MOST_HOURS = 50_000
"""Counted hours that durations are estimated from, over all jobs."""
HISTORY = timedelta(days=28)
"""The time before now from which durations are taken."""
LONG_FACTOR = 2
"""A long execution without a history, as a multiple of a typical one."""


class Interval(NamedTuple):
    """A time (start, end]."""

    start: datetime
    end: datetime


class Pause(NamedTuple):
    """A pause that is assumed. `job` None: all jobs pause."""

    job: str | None
    interval: Interval


class Declared(NamedTuple):
    """The jobs and the calendars of one source, as an apply would write them."""

    source: str
    jobs: Sequence[Job]
    calendars: Mapping[str, CalendarSpec]


@dataclass(frozen=True, slots=True)
class Planned:
    """A job as it is planned. `source`: where it is declared. `paused`: its present pause.

    `is_broken`: the ledger has a `spec_error` for it. `is_new`: no plan_time before now is its own.
    """

    job: Job
    calendar: Calendar | None
    source: str | None = None
    paused: Interval | None = None
    is_broken: bool = False
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Durations:
    """How long executions of a job take."""

    typical: timedelta
    long: timedelta


@dataclass(frozen=True, slots=True)
class Basis:
    """What a forecast is computed from. `scopes`: the cursors of the scopes of each job.

    `undeclared_scopes`: jobs whose scopes only their provider knows. `has_more`: the ledger has
    more jobs or scopes than are read. `paused_queues` are taken as resumed.
    """

    now: datetime
    jobs: Mapping[str, Planned]
    scopes: Mapping[str, Mapping[ScopeKey, datetime]]
    durations: Mapping[str, Durations]
    capacity: Capacity
    running: Sequence[Row]
    paused_queues: Sequence[str] = ()
    has_more: bool = False
    undeclared_scopes: Sequence[str] = ()
    pauses: Sequence[Pause] = field(default=())

    @property
    def broken(self) -> list[str]:
        """The jobs with an error in their definition, which do not fire."""
        return [name for name, one in self.jobs.items() if one.is_broken]


def read_basis(read: ReadRows) -> Basis:
    """Return what the ledger holds. `read` returns the rows of `ledger/sql/NAME.sql`.

    Reads of one transaction agree with each other. Raises what `read` raises.
    """
    reports = Reports(read)
    now = reports.now()
    jobs = read("list_forecast_jobs", {"max_rows": MOST_JOBS + 1})
    scopes = read("list_forecast_scopes", {"max_rows": MOST_SCOPES + 1})
    has_more = len(jobs) > MOST_JOBS or len(scopes) > MOST_SCOPES
    jobs = jobs[:MOST_JOBS]
    calendars = {key.name: found for key, found in reports.calendars(jobs).items()}
    of_job: dict[str, dict[ScopeKey, datetime]] = defaultdict(dict)
    for row in scopes[:MOST_SCOPES]:
        key = ScopeKey(row["job_name"], row["scope_kind"], row["scope_id"])
        of_job[key.job_name][key] = row["planned_through"]
    queues = reports.queues()
    return Basis(
        now=now,
        jobs={row["name"]: _planned(row, calendars, now) for row in jobs},
        scopes=of_job,
        durations=_durations(read, [*of_job], now),
        capacity=Capacity(
            _pools(reports.runners()),
            {row["name"]: row["max_running"] for row in queues if row["max_running"] is not None},
        ),
        running=read("list_forecast_running", {"max_rows": MOST_RUNNING}),
        paused_queues=[row["name"] for row in queues if row["paused_at"] is not None],
        has_more=has_more,
    )


def _planned(row: Row, calendars: Mapping[str, Calendar], now: datetime) -> Planned:
    fields = {name: row[name] for name in Job.model_fields if name in row}
    fields |= {"overlap": Overlap(row["overlap"]), "catch_up": CatchUp(row["catch_up"])}
    until = row["paused_until"] or NEVER
    paused = Interval(row["paused_at"], until) if row["paused_at"] and until > now else None
    return Planned(
        Job.model_construct(**fields), calendars.get(row["calendar"]), row["source"], paused,
        row["spec_error"] is not None,
    )  # fmt: skip


def _durations(read: ReadRows, jobs: Sequence[str], now: datetime) -> dict[str, Durations]:
    if not jobs:
        return {}
    most = max(3, min(500, MOST_HOURS // len(jobs)))
    since = (now - HISTORY).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    rows = read("list_job_durations", {"names": list(jobs), "since": since, "max_rows": most})
    return {
        row["job_name"]: Durations(
            timedelta(milliseconds=row["p50"]), timedelta(milliseconds=row["p95"])
        )
        for row in rows
        if row["p50"] is not None
    }


def _pools(runners: Iterable[Row]) -> list[Pool]:
    found: dict[frozenset[str], int] = defaultdict(int)
    for row in runners:
        if row["state"] == "running" and row["slots"]:
            found[frozenset(row["queues"])] += row["slots"]
    return [Pool(queues, slots) for queues, slots in found.items()]


def with_slots(basis: Basis, slots: Mapping[str | None, int]) -> Basis:
    """Return the basis with these slots of queues instead of those of live runners.

    None: slots that all other queues share.
    """
    queues = {one.job.queue for one in basis.jobs.values()}
    pools = [Pool(frozenset({queue}), n) for queue, n in slots.items() if queue is not None]
    if None in slots:
        pools.append(Pool(frozenset(queues - slots.keys()), slots[None]))
    else:
        pools += [
            Pool(rest, pool.slots)
            for pool in basis.capacity.pools
            if (rest := frozenset(queue for queue in pool.queues if queue not in slots))
        ]
    return replace(basis, capacity=Capacity(pools, basis.capacity.limits))


def with_pauses(basis: Basis, pauses: Sequence[Pause]) -> Basis:
    """Return the basis with pauses of jobs that are assumed."""
    return replace(basis, pauses=[*basis.pauses, *pauses])


def with_sources(basis: Basis, sources: Sequence[Declared], reports: Reports) -> Basis:
    """Return the basis as it would be after an apply of these sources.

    A job that changes keeps its pause and its durations. Raises ConfigurationError as the apply
    would, and psycopg.Error.
    """
    jobs, scopes = dict(basis.jobs), dict(basis.scopes)
    stored = {row["name"]: row for row in reports.all_calendars()}
    calendars = {
        one.calendar.name: one.calendar for one in jobs.values() if one.calendar is not None
    }
    undeclared: list[str] = []
    for declared in sources:
        source_calendars.refuse(declared.source, declared.jobs, declared.calendars, stored)
        names = {job.name for job in declared.jobs}
        owners = {name: one.source for name, one in jobs.items() if name in names}
        refuse_foreign(declared.source, owners)
        written, _ = source_calendars.write_out(
            declared.source, declared.calendars, basis.now.date()
        )
        calendars |= {calendar.name: calendar for calendar in written}
        stored |= {name: {"source": declared.source} for name in declared.calendars}
        for name in [name for name, one in jobs.items() if one.source == declared.source]:
            if name not in names:
                del jobs[name]
        for job in declared.jobs:
            before = jobs.get(job.name)
            jobs[job.name] = Planned(
                job, None, declared.source, None if before is None else before.paused,
                is_new=before is None or _timing(before.job) != _timing(job),
            )  # fmt: skip
            found = _scopes(job, scopes.get(job.name, {}), basis.now)
            scopes[job.name] = found
            if not found and job.schedule is not None:
                undeclared.append(job.name)
    named = {one.job.calendar for one in jobs.values() if one.job.calendar is not None}
    for calendar in named - calendars.keys():
        row = reports.calendar(calendar)
        if row is not None:
            calendars[row["calendar_name"]] = Calendar.from_row(row)
    return replace(
        basis,
        jobs={
            name: replace(one, calendar=calendars.get(one.job.calendar or ""))
            for name, one in jobs.items()
        },
        scopes=scopes,
        undeclared_scopes=undeclared,
    )


def _timing(job: Job) -> tuple[object, ...]:
    """Return what decides the plan_times of a job. An edit owns only those after it."""
    return job.schedule, job.timezone, job.calendar, job.on_excluded, job.day_or


def _scopes(
    job: Job, known: Mapping[ScopeKey, datetime], now: datetime
) -> Mapping[ScopeKey, datetime]:
    if job.scopes is None and job.scope_kind != GLOBAL:
        return {key: at for key, at in known.items() if key.scope_kind == job.scope_kind}
    keys = [ScopeKey(job.name, job.scope_kind, scope) for scope in job.scopes or (GLOBAL,)]
    return {key: known.get(key, now) for key in keys}


def series_of(basis: Basis) -> list[Series]:
    """Return the coming plan_times of every scope of the jobs that have a schedule."""
    found = []
    for name, one in basis.jobs.items():
        if one.job.schedule is None or one.is_broken:
            continue
        revisions = _revisions(one, [
            pause.interval for pause in basis.pauses if pause.job in (None, name)
        ])  # fmt: skip
        durations = basis.durations.get(name) or _declared_durations(one.job)
        known = durations or Durations(timedelta(0), timedelta(0))
        for key, cursor in basis.scopes.get(name, {}).items():
            found.append(Series(
                key, revisions, _after(one, cursor, basis.now), known.typical, known.long,
                durations is not None,
            ))  # fmt: skip
    return found


def running_of(basis: Basis) -> list[Running]:
    """Return the executions that run now, and when each will probably end."""
    return [
        Running(
            ScopeKey(row["job_name"], row["scope_kind"], row["scope_id"]),
            row["queue"],
            row["started_at"] + (found.typical if found is not None else timedelta(0)),
        )
        for row in basis.running
        for found in (basis.durations.get(row["job_name"]),)
    ]


def _after(one: Planned, cursor: datetime, now: datetime) -> datetime:
    """Return the instant after which plan_times may still be due after now."""
    if one.is_new:
        return now
    lag = min(one.job.schedule_delay, FOREVER) + min(one.job.jitter, FOREVER)
    return max(cursor, back(now, lag, EPOCH))


def _declared_durations(job: Job) -> Durations | None:
    """Return the durations that a job without a history expects, or None."""
    try:
        found = None if job.expect_duration is None else parse_expected(job.expect_duration)
    except DurationError:
        return None
    return Durations(found / LONG_FACTOR, found) if isinstance(found, timedelta) else None


def _revisions(one: Planned, assumed: Sequence[Interval]) -> list[Revision]:
    """Return the revisions of a job: active, and paused in each of the pauses.

    Planned pauses of the ledger, skips and gates belong here and in `Series`: the timeline and the
    planner then count them.
    """
    pauses = [] if one.paused is None else [one.paused]
    found = [Revision(0, EPOCH, JobState.ACTIVE, one.job, calendar=one.calendar)]
    for number, (start, end) in enumerate(_union([*pauses, *assumed]), 1):
        until = None if end == NEVER else end
        found.append(
            Revision(number, start, JobState.PAUSED, one.job, until, calendar=one.calendar)
        )
    return found


def _union(intervals: Sequence[Interval]) -> list[Interval]:
    """Return the intervals in order, those that overlap or touch as one."""
    found: list[Interval] = []
    for one in sorted(intervals):
        if found and one.start <= found[-1].end:
            found[-1] = Interval(found[-1].start, max(found[-1].end, one.end))
        else:
            found.append(one)
    return found

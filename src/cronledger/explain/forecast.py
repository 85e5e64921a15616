"""The forecast of a ledger: what it holds now, what files would change, and what is assumed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple, Self

from cronledger.explain import durations
from cronledger.explain.durations import Durations
from cronledger.explain.findings import named
from cronledger.explain.firings import planned_skip
from cronledger.ledger.reports import ReadRows, Reports, Row
from cronledger.rules.calendar_spec import CalendarSpec
from cronledger.rules.calendars import Calendar
from cronledger.rules.chains import resolved
from cronledger.rules.deadline_texts import parse_expected
from cronledger.rules.durations import DurationError
from cronledger.rules.forecast import Forecast
from cronledger.rules.model import (
    GLOBAL,
    CatchUp,
    Job,
    JobState,
    Overlap,
    Revision,
    ScopeKey,
    unchecked,
)
from cronledger.rules.plan_times import EPOCH, FOREVER, NEVER, TICK, back
from cronledger.rules.plans import PlannedSkip
from cronledger.rules.requirements import Upstream
from cronledger.rules.simulation_values import Capacity, Pool, Running, Series
from cronledger.sources import source_calendars
from cronledger.sources.apply import refuse_foreign

MOST_JOBS = 10_000
MOST_SCOPES = 20_000
MOST_RUNNING = 10_000
MOST_PAUSES = 10_000
MOST_SKIPS = 20_000

LONG_FACTOR = 2
"""A long execution without a history, as a multiple of a typical one."""


class Interval(NamedTuple):
    """A time (start, end]."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause that is planned, in force or assumed. What is due in (start, end] does not start.

    A job is selected if it matches each part that is not None.
    """

    interval: Interval
    job: str | None = None
    queue: str | None = None
    owner: str | None = None
    labels: Mapping[str, str] | None = None

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Return the pause of a row of `list_forecast_pauses.sql`. It has what is due at its
        beginning, too.
        """
        interval = Interval(row["from_at"] - TICK, row["until_at"] or NEVER)
        return cls(interval, row["job_name"], row["queue"], row["owner"], row["labels"])

    def covers(self, job: Job) -> bool:
        """Return whether the pause selects a job."""
        labels = dict(job.labels or {})
        return (
            self.job in (None, job.name)
            and self.queue in (None, job.queue)
            and self.owner in (None, job.owner)
            and all(labels.get(name) == value for name, value in (self.labels or {}).items())
        )


class Declared(NamedTuple):
    """The jobs and the calendars of one source, as an apply would write them."""

    source: str
    jobs: Sequence[Job]
    calendars: Mapping[str, CalendarSpec]


@dataclass(frozen=True, slots=True)
class Planned:
    """A job as it is planned. `source`: where it is declared.

    `is_broken`: the ledger has a `spec_error` for it. `is_new`: no plan_time before now is its own.
    """

    job: Job
    calendar: Calendar | None
    source: str | None = None
    is_broken: bool = False
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Basis:
    """What a forecast is computed from. `scopes`: the cursors of the scopes of each job.

    `undeclared_scopes`: jobs whose scopes only their provider knows. `has_more`: the ledger has
    more jobs, scopes, pauses or planned skips than are read. `paused_queues` are taken as resumed.
    `pauses`: those of the ledger that have not ended, and those that are assumed. `skips`: the
    planned skips by job, with their scopes (None: all).
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
    pauses: Sequence[Pause] = ()
    skips: Mapping[str, Sequence[tuple[str | None, PlannedSkip]]] = field(default_factory=dict)

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
    pauses = read("list_forecast_pauses", {"max_rows": MOST_PAUSES + 1})
    skips = read("list_forecast_skips", {"max_rows": MOST_SKIPS + 1})
    has_more = (
        len(jobs) > MOST_JOBS or len(scopes) > MOST_SCOPES
        or len(pauses) > MOST_PAUSES or len(skips) > MOST_SKIPS
    )  # fmt: skip
    jobs = jobs[:MOST_JOBS]
    calendars = {key.name: found for key, found in reports.calendars(jobs).items()}
    of_job: dict[str, dict[ScopeKey, datetime]] = defaultdict(dict)
    for row in scopes[:MOST_SCOPES]:
        key = ScopeKey(row["job_name"], row["scope_kind"], row["scope_id"])
        of_job[key.job_name][key] = row["planned_through"]
    skips_of: dict[str, list[tuple[str | None, PlannedSkip]]] = defaultdict(list)
    for row in skips[:MOST_SKIPS]:
        skips_of[row["job_name"]].append((row["scope_id"], planned_skip(row)))
    queues = reports.queues()
    return Basis(
        now=now,
        jobs={row["name"]: _planned(row, calendars) for row in jobs},
        scopes=of_job,
        durations=durations.by_job(
            read("list_job_durations", durations.parameters([*of_job], now))
        ),
        capacity=Capacity(
            _pools(reports.runners()),
            {row["name"]: row["max_running"] for row in queues if row["max_running"] is not None},
        ),
        running=read("list_forecast_running", {"max_rows": MOST_RUNNING}),
        paused_queues=[row["name"] for row in queues if row["paused_at"] is not None],
        has_more=has_more,
        pauses=[Pause.from_row(row) for row in pauses[:MOST_PAUSES]],
        skips=skips_of,
    )


def as_job(row: Row) -> Job:
    """Return the job of a row of `job_details`, which is not checked again."""
    after = row["after"] and tuple(Upstream.model_validate(one) for one in row["after"])
    overlap, catch_up = Overlap(row["overlap"]), CatchUp(row["catch_up"])
    return unchecked({**row, "after": after, "overlap": overlap, "catch_up": catch_up})


def _planned(row: Row, calendars: Mapping[str, Calendar]) -> Planned:
    return Planned(
        as_job(row), calendars.get(row["calendar"]), row["source"],
        row["spec_error"] is not None,
    )  # fmt: skip


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


def caveats(basis: Basis, found: Forecast, unless: str = "") -> list[str]:
    """Return the caveats of a forecast as sentences: what it assumes, and which data was missing.

    `unless`: how the reader may give slots to queues without any.
    """
    texts = []
    if basis.has_more:
        texts.append(
            f"the ledger has more than {MOST_JOBS:,} jobs, {MOST_SCOPES:,} scopes, {MOST_PAUSES:,} "
            f"pauses or {MOST_SKIPS:,} planned skips; the forecast has the first ones"
        )
    served = {queue for pool in basis.capacity.pools for queue in pool.queues}
    queues = {
        one.job.queue
        for one in basis.jobs.values()
        if one.job.schedule is not None and not one.job.is_observed(found.through)
    }
    for names, text in (
        (basis.broken, "these jobs have an error in their definition and do not fire"),
        (found.unreadable, "these jobs have an invalid schedule"),
        (basis.undeclared_scopes, "these jobs have scopes that only their provider knows"),
        (found.unknown, "these jobs have no durations yet, so they take no time here"),
        (
            sorted(queues - served),
            f"no live runner serves these queues, so their slots are unlimited here{unless}",
        ),
        (
            sorted(queues & {*basis.paused_queues}),
            "these queues are paused, and counted as resumed",
        ),
    ):
        if names:
            texts.append(f"{text}: {named(names)}")
    return texts


def with_pauses(basis: Basis, pauses: Sequence[Pause]) -> Basis:
    """Return the basis with pauses of jobs that are assumed."""
    return replace(basis, pauses=[*basis.pauses, *pauses])


def with_sources(basis: Basis, sources: Sequence[Declared], reports: Reports) -> Basis:
    """Return the basis as it would be after an apply of these sources.

    A job that changes keeps its durations. Raises ConfigurationError as the apply
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
                job, None, declared.source,
                is_new=before is None or _timing(before.job) != _timing(job),
            )  # fmt: skip
    _follow_upstreams(jobs)
    for declared in sources:
        for job in declared.jobs:
            found = _scopes(job, scopes.get(job.name, {}), basis.now)
            scopes[job.name] = found
            if not found and jobs[job.name].job.schedule is not None:
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


def _follow_upstreams(jobs: dict[str, Planned]) -> None:
    """Give each job with `after` the schedule of its upstream, as the ledger will."""
    bare = {
        name: one.job.model_copy(update={"schedule": None}) if one.job.after else one.job
        for name, one in jobs.items()
    }
    for job in resolved([job for job in bare.values() if job.after], bare):
        before = jobs[job.name]
        jobs[job.name] = replace(
            before, job=job, is_new=before.is_new or _timing(before.job) != _timing(job)
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
    of_job: dict[str, list[Pause]] = defaultdict(list)
    for pause in basis.pauses:
        of_job[pause.job or ""].append(pause)
    wide = of_job.pop("", [])
    for name, one in basis.jobs.items():
        if one.job.schedule is None or one.is_broken:
            continue
        paused = [pause.interval for pause in wide + of_job.get(name, []) if pause.covers(one.job)]
        revisions = _revisions(one, paused)
        usual = basis.durations.get(name) or _declared_durations(one.job)
        known = usual or Durations(timedelta(0), timedelta(0))
        skips = basis.skips.get(name, ())
        for key, cursor in basis.scopes.get(name, {}).items():
            found.append(Series(
                key, revisions, _after(one, cursor, basis.now), known.typical, known.long,
                usual is not None,
                [skip for scope, skip in skips if scope in (None, key.scope_id)],
            ))  # fmt: skip
    return found


def running_of(basis: Basis) -> list[Running]:
    """Return the executions that run now, and when each will probably end."""
    return [
        Running(
            ScopeKey(row["job_name"], row["scope_kind"], row["scope_id"]),
            row["queue"],
            row["started_at"] + (found.typical if found is not None else timedelta(0)),
            row["plan_time"],
            row["is_observed"],
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


def _revisions(one: Planned, pauses: Sequence[Interval]) -> list[Revision]:
    """Return the revisions of a job: active, and paused in each of the pauses."""
    found = [Revision(0, EPOCH, JobState.ACTIVE, one.job, calendar=one.calendar)]
    for number, (start, end) in enumerate(_union(pauses), 1):
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

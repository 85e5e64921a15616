"""The forecast: what `simulation` finds, by day, job and minute, and the deadlines at risk.

Days are those of UTC. The size of a forecast is bounded by the minutes, by the jobs and by the
limits below, and not by the firings.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from cronledger.rules import deadlines
from cronledger.rules.cron_fields import CronError
from cronledger.rules.deadlines import Kind
from cronledger.rules.durations import DurationError
from cronledger.rules.firings import Firings
from cronledger.rules.model import Job, ScopeKey, SkipReason
from cronledger.rules.simulation import Simulation
from cronledger.rules.simulation_values import (
    Capacity,
    Cause,
    Executed,
    Running,
    Series,
    Skipped,
    Unstarted,
)

STARTS = "starts"
"""The outcome of a plan_time that runs. The others are those of `SkipReason`, and WAITS."""
WAITS = "waits"
"""The outcome of a plan_time that still waits at the end of the forecast."""
MOST_FIRINGS = 500_000
"""Firings of one forecast. If there are more, it ends earlier."""
MOST_RISKS = 100
MOST_BACKLOGS = 100
PEAKS = 10
SHARES = 5

_MINUTE = timedelta(minutes=1)
_SECOND = timedelta(seconds=1)
_CHOSEN = (SkipReason.OVERLAP, SkipReason.SUPERSEDED, SkipReason.MISSED, SkipReason.UPSTREAM)
"""The skips that have deadlines: those that the policies and gates decide."""

Outcomes = Mapping[str, int]
"""Plan_times by outcome."""


class Risk(NamedTuple):
    """A deadline that will be missed (`is_certain`), or only if the execution takes long.

    `expected`: when the start, or the end, is expected; None: the plan_time will not run.
    """

    key: ScopeKey
    plan_time: datetime
    kind: Kind
    deadline: datetime
    expected: datetime | None
    is_certain: bool


class Backlog(NamedTuple):
    """Minutes from `start` to `end` in which executions of a queue wait for `cause`.

    `most`: how many wait in one of these minutes. `longest`: the longest wait that ends in them, or
    that lasts at the end of the forecast.
    """

    queue: str
    cause: Cause
    start: datetime
    end: datetime
    most: int
    longest: timedelta


@dataclass(slots=True)
class Wait:
    """The executions of a job that start late for one cause, and the longest wait."""

    count: int = 0
    longest: timedelta = timedelta(0)


@dataclass(slots=True)
class GateWaits:
    """The executions of a job that wait for one required job, the longest wait, and how many of
    them reach `wait_at_most` (`expired`), the first with this plan_time.
    """

    count: int = 0
    longest: timedelta = timedelta(0)
    expired: int = 0
    first_expired: datetime | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """What one scope adds to a minute: `running` is its average number of executions in it."""

    key: ScopeKey
    running: float


@dataclass(frozen=True, slots=True)
class Peak:
    """One of the minutes with the greatest load, and the scopes that make most of it."""

    minute: int
    shares: Sequence[Share]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of (now, through]. Minutes count from `start`, the minute of `now`.

    `wanted`: the end that was asked for. `starts`, `running`, `waiting`: by minute, the starts, the
    average number of executions at once, and the executions that wait for slots or for the limit of
    a queue; all of them without observed jobs, which use no slot. `days`: the plan_times by
    outcome. `jobs`: the same by (job, day), `waits` by job and cause, `gates` by job and required
    job, `missed` and `risky` the deadlines by job. `risks`: the first of them. `unknown`: jobs
    without known durations. `unreadable`: those with an invalid schedule.
    """

    now: datetime
    through: datetime
    wanted: datetime
    start: datetime
    starts: "array[int]"
    running: "array[float]"
    waiting: "array[int]"
    days: Mapping[date, Outcomes]
    jobs: Mapping[tuple[str, date], Outcomes]
    waits: Mapping[str, Mapping[Cause, Wait]]
    gates: Mapping[tuple[str, str], GateWaits]
    backlogs: Sequence[Backlog]
    more_backlogs: int
    risks: Sequence[Risk]
    missed: Counter[str]
    risky: Counter[str]
    most_running: Mapping[str, int]
    peaks: Sequence[Peak]
    unknown: Sequence[str]
    unreadable: Sequence[str]
    scopes: int

    def at(self, minute: int) -> datetime:
        """Return the instant at which a minute begins."""
        return self.start + minute * _MINUTE

    @property
    def is_cut(self) -> bool:
        """Whether it ends before the wanted end, because there are too many firings."""
        return self.through < self.wanted


def forecast(
    series: Sequence[Series],
    capacity: Capacity,
    running: Sequence[Running],
    now: datetime,
    length: timedelta,
    *,
    most: int = MOST_FIRINGS,
) -> Forecast:
    """Return the forecast of the time after `now`, which ends before it has more than `most`
    firings.
    """
    wanted = now + length
    through = _bounded(series, now, wanted, most)
    simulation = Simulation(series, capacity, running, now, through)
    summing = _Summing(series, now, through)
    for outcome in simulation.outcomes():
        match outcome:
            case Executed():
                summing.execute(outcome)
            case Skipped():
                summing.skip(outcome)
            case Unstarted():
                summing.wait(outcome)
    backlogs = summing.backlogs()
    return Forecast(
        now=now,
        through=through,
        wanted=wanted,
        start=summing.start,
        starts=summing.starts,
        running=summing.running(),
        waiting=summing.waiting(),
        days=_by_day(summing.jobs),
        jobs=summing.jobs,
        waits=summing.waits,
        gates=summing.gates,
        backlogs=backlogs[:MOST_BACKLOGS],
        more_backlogs=max(0, len(backlogs) - MOST_BACKLOGS),
        risks=sorted(summing.risks, key=lambda one: (one.plan_time, one.key, one.kind))[
            :MOST_RISKS
        ],
        missed=summing.missed,
        risky=summing.risky,
        most_running=simulation.most_running,
        peaks=summing.peaks(),
        unknown=sorted({one.key.job_name for one in series if not one.known}),
        unreadable=sorted({series[number].key.job_name for number in simulation.unreadable}),
        scopes=len(series),
    )


def _bounded(series: Sequence[Series], now: datetime, wanted: datetime, most: int) -> datetime:
    """Return the end of the forecast, at which it has at most `most` firings."""
    through = wanted
    while (total := sum(_firings(one, now, through) for one in series)) > most:
        through = now + (through - now) * (0.9 * most / total)
    return through


def _firings(one: Series, now: datetime, through: datetime) -> int:
    """Return the number of firings of a schedule; 0 if it is invalid."""
    try:
        calendar = one.revisions[-1].calendar
        firings = Firings.of(one.job, now, through, scope=one.key.scope_id, calendar=calendar)
        return firings.count()
    except (ValueError, OverflowError):
        return 0


def _by_day(jobs: Mapping[tuple[str, date], Outcomes]) -> Mapping[date, Outcomes]:
    found: dict[date, Counter[str]] = defaultdict(Counter)
    for (_, day), outcomes in sorted(jobs.items(), key=lambda item: item[0][1]):
        found[day].update(outcomes)
    return found


@dataclass(slots=True)
class _Minutes:
    """A sum by minute of what lasts for some time, kept as its changes."""

    size: int
    partial: "array[float]" = field(init=False)
    change: "array[int]" = field(init=False)

    def __post_init__(self) -> None:
        self.partial = array("d", bytes(8 * (self.size + 1)))
        self.change = array("l", bytes(array("l").itemsize * (self.size + 1)))

    def add(self, first: float, last: float) -> None:
        """Add one from second `first` to second `last`."""
        last = min(last, 60.0 * self.size)
        a, b = int(first // 60), int(last // 60)
        if a == b:
            self.partial[a] += last - first
            return
        self.partial[a] += 60 * (a + 1) - first
        self.partial[b] += last - 60 * b
        self.change[a + 1] += 1
        self.change[b] -= 1

    def averages(self) -> "array[float]":
        """Return the average of each minute."""
        found, full = array("d"), 0
        for minute in range(self.size):
            full += self.change[minute]
            found.append(full + self.partial[minute] / 60)
        return found


@dataclass(slots=True)
class _Queueing:
    """The waits of one queue for one cause by minute: how many, and the longest that ends there."""

    change: "array[int]"
    longest: dict[int, timedelta] = field(default_factory=dict)

    def add(self, first: int, last: int, length: timedelta) -> None:
        """Add a wait from the minute `first` to the minute `last`."""
        self.change[first] += 1
        self.change[last + 1] -= 1
        self.longest[last] = max(length, self.longest.get(last, length))

    def counts(self) -> "array[int]":
        found, count = array("l"), 0
        for change in self.change[:-1]:
            count += change
            found.append(count)
        return found


class _Summing:
    """Adds up the outcomes."""

    def __init__(self, series: Sequence[Series], now: datetime, through: datetime) -> None:
        self._series = series
        self._through = through
        self.start = now.replace(second=0, microsecond=0)
        self.size = max(1, -((self.start - through) // _MINUTE))
        self.starts = array("l", bytes(array("l").itemsize * self.size))
        self.jobs: dict[tuple[str, date], Counter[str]] = defaultdict(Counter)
        self.waits: dict[str, dict[Cause, Wait]] = defaultdict(dict)
        self.gates: dict[tuple[str, str], GateWaits] = defaultdict(GateWaits)
        self.risks: list[Risk] = []
        self.missed: Counter[str] = Counter()
        self.risky: Counter[str] = Counter()
        self._running = _Minutes(self.size)
        self._queueing: dict[tuple[str, Cause], _Queueing] = {}
        # The executions in seconds from `start`: what the worst minutes are made of.
        self._numbers, self._firsts, self._lasts = array("l"), array("d"), array("d")
        self._with_deadlines = [_has_deadlines(one.job) for one in series]

    def execute(self, one: Executed) -> None:
        """Add an execution."""
        self._count(one.series, one.plan_time, STARTS)
        if not self._series[one.series].job.is_observed(self._through):
            self._add_load(one)
        if one.upstream is not None:
            self._add_gate(one.series, one.upstream, one.ready_at - one.due_at)
        if one.cause is not None:
            self._add_wait(one.series, one.cause, one.ready_at, one.start)
        if self._with_deadlines[one.series]:
            series = self._series[one.series]
            self._add_risks(one.series, one.plan_time, one.start, one.end, one.start + series.long)

    def _add_load(self, one: Executed) -> None:
        first, last = self._second(one.start), self._second(one.end)
        self.starts[min(int(first // 60), self.size - 1)] += 1
        self._running.add(first, last)
        self._numbers.append(one.series)
        self._firsts.append(first)
        self._lasts.append(last)

    def skip(self, one: Skipped) -> None:
        """Add a plan_time that does not run."""
        self._count(one.series, one.plan_time, one.reason)
        if one.upstream is not None:
            self._add_gate(one.series, one.upstream, one.waited, one.plan_time)
        if self._with_deadlines[one.series] and one.reason in _CHOSEN:
            self._add_risks(one.series, one.plan_time, None, None, None)

    def wait(self, one: Unstarted) -> None:
        """Add a plan_time that still waits at the end."""
        self._count(one.series, one.plan_time, WAITS)
        if one.upstream is not None:
            self._add_gate(one.series, one.upstream, self._through - one.ready_at)
        else:
            self._add_wait(one.series, one.cause, one.ready_at, self._through)

    def running(self) -> "array[float]":
        """Return the average number of executions at once by minute."""
        return self._running.averages()

    def waiting(self) -> "array[int]":
        """Return by minute how many executions wait for slots or for the limit of a queue."""
        found = array("l", bytes(array("l").itemsize * self.size))
        for one in self._queueing.values():
            for minute, count in enumerate(one.counts()):
                found[minute] += count
        return found

    def backlogs(self) -> list[Backlog]:
        """Return the times in which executions of a queue wait, those with the longest first."""
        found = []
        for (queue, cause), one in self._queueing.items():
            counts = one.counts()
            for waits, minutes in groupby(range(self.size), key=lambda m: counts[m] > 0):
                if waits:
                    part = list(minutes)
                    found.append(Backlog(
                        queue, cause, self.start + part[0] * _MINUTE,
                        self.start + (part[-1] + 1) * _MINUTE,
                        max(counts[part[0] : part[-1] + 1]),
                        max(one.longest.get(minute, timedelta(0)) for minute in part),
                    ))  # fmt: skip
        return sorted(found, key=lambda one: (-one.longest, one.start, one.queue))

    def first_risks(self) -> list[Risk]:
        """Return the first deadlines at risk."""
        order = sorted(self.risks, key=lambda one: (one.plan_time, one.key, one.kind))
        return order[:MOST_RISKS]

    def peaks(self) -> list[Peak]:
        """Return the minutes with the greatest load, and the scopes that make most of it."""
        running = self.running()
        order = sorted(range(self.size), key=lambda m: (-running[m], -self.starts[m], m))
        chosen = [m for m in order[:PEAKS] if running[m] or self.starts[m]]
        shares: dict[int, Counter[int]] = {minute: Counter() for minute in chosen}
        for number, first, last in zip(self._numbers, self._firsts, self._lasts, strict=True):
            for minute in chosen:
                low, high = max(first, 60.0 * minute), min(last, 60.0 * minute + 60)
                if low < high:
                    shares[minute][number] += (high - low) / 60  # type: ignore[assignment]
        return [
            Peak(minute, [
                Share(self._series[number].key, value)
                for number, value in shares[minute].most_common(SHARES)
            ])
            for minute in chosen
        ]  # fmt: skip

    def _count(self, number: int, plan_time: datetime, outcome: str) -> None:
        day = plan_time.astimezone(UTC).date()
        self.jobs[self._series[number].key.job_name, day][outcome] += 1

    def _second(self, instant: datetime) -> float:
        return max(0.0, (instant - self.start) / _SECOND)

    def _add_gate(
        self, number: int, upstream: str, length: timedelta, expired: datetime | None = None
    ) -> None:
        found = self.gates[self._series[number].key.job_name, upstream]
        found.count += 1
        found.longest = max(found.longest, length)
        if expired is not None:
            found.expired += 1
            found.first_expired = min(expired, found.first_expired or expired)

    def _add_wait(self, number: int, cause: Cause, due: datetime, end: datetime) -> None:
        job, length = self._series[number].job, end - due
        wait = self.waits[job.name].setdefault(cause, Wait())
        wait.count += 1
        wait.longest = max(wait.longest, length)
        if cause in (Cause.SLOTS, Cause.QUEUE):
            found = self._queueing.get((job.queue, cause))
            if found is None:
                change = array("l", bytes(array("l").itemsize * (self.size + 1)))
                found = self._queueing[job.queue, cause] = _Queueing(change)
            first, last = (min(int(self._second(x) // 60), self.size - 1) for x in (due, end))
            found.add(first, last, length)

    def _add_risks(
        self, number: int, plan_time: datetime, start: datetime | None, end: datetime | None,
        late_end: datetime | None,
    ) -> None:  # fmt: skip
        key, job = self._series[number].key, self._series[number].job
        for kind, text, expected, latest in (
            (Kind.START_BY, job.start_by, start, start),
            (Kind.FINISH_BY, job.finish_by, end, late_end),
        ):
            if text is None:
                continue
            try:
                deadline = deadlines.instant(text, plan_time, job.timezone)
            except (CronError, DurationError):
                continue
            if deadline is None or (latest is not None and latest <= deadline):
                continue
            is_certain = expected is None or expected > deadline
            (self.missed if is_certain else self.risky)[job.name] += 1
            self.risks.append(Risk(key, plan_time, kind, deadline, expected, is_certain))
        if len(self.risks) > 2 * MOST_RISKS:
            self.risks = self.first_risks()


def _has_deadlines(job: Job) -> bool:
    return job.start_by is not None or job.finish_by is not None


# --- comparison -----------------------------------------------------------------------------------


class Difference(NamedTuple):
    """The plan_times of a job on a day, by outcome, if these differ between two forecasts."""

    job: str
    day: date
    before: Outcomes
    after: Outcomes


def differences(before: Forecast, after: Forecast) -> list[Difference]:
    """Return what differs, by job and day, up to the earlier end of the two forecasts."""
    last = min(before.through, after.through).astimezone(UTC).date()
    keys = sorted(key for key in before.jobs.keys() | after.jobs.keys() if key[1] <= last)
    return [
        Difference(job, day, before.jobs.get((job, day), {}), after.jobs.get((job, day), {}))
        for job, day in keys
        if before.jobs.get((job, day)) != after.jobs.get((job, day))
    ]


# --- a free minute --------------------------------------------------------------------------------

PERIODS = {"@hourly": 60, "@daily": 24 * 60, "@weekly": 7 * 24 * 60}
"""The minutes after which a schedule repeats, for `suggest`."""


class Suggestion(NamedTuple):
    """A schedule at a free minute. `starts`, `running`: the most in this minute of any period."""

    schedule: str
    starts: int
    running: float


def suggest(found: Forecast, alias: str) -> Suggestion:
    """Return a schedule like `alias`, one of PERIODS, at the minute of UTC with the least load.

    The least starts at once come first, then the fewest executions at once. Of equal minutes, the
    one in the middle of the longest time without starts is returned.
    """
    period = PERIODS[alias]
    starts, running = [0] * period, [0.0] * period
    offset = int((found.start - _MONDAY) / _MINUTE) % period
    for minute, (count, value) in enumerate(zip(found.starts, found.running, strict=True)):
        at = (offset + minute) % period
        starts[at], running[at] = max(starts[at], count), max(running[at], value)
    gap = _distances(starts)
    best = min(range(period), key=lambda m: (starts[m], round(running[m], 2), -gap[m], m))
    return Suggestion(_schedule(alias, best), starts[best], running[best])


_MONDAY = datetime(2024, 1, 1, tzinfo=UTC)


def _distances(starts: Sequence[int]) -> list[int]:
    """Return how far each minute is from the next one with starts, around the period."""
    size = len(starts)
    found = [size] * size
    for order in (range(2 * size), range(2 * size - 1, -1, -1)):
        away = size
        for minute in order:
            away = 0 if starts[minute % size] else min(away + 1, size)
            found[minute % size] = min(found[minute % size], away)
    return found


def _schedule(alias: str, minute: int) -> str:
    hour, minute = divmod(minute, 60)
    if alias == "@hourly":
        return f"{minute} * * * *"
    day, hour = divmod(hour, 24)
    return f"{minute} {hour} * * {'*' if alias == '@daily' else (day + 1) % 7}"

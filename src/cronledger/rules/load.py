"""The load that schedules ask for: collisions of a second, and the executions at once of a day.

Retries, requested executions and waiting are not foreseen. Both compute the plan_times as the
planner does. An execution is due at plan_time + schedule_delay + jitter.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from math import ceil
from typing import NamedTuple

from cronledger.rules.calendars import Calendar
from cronledger.rules.cron import Cron
from cronledger.rules.firings import cron_in
from cronledger.rules.model import GLOBAL, Job, Overlap, ScopeKey
from cronledger.rules.timeline import due_at, lifetime

SAMPLE = 1000
"""Beyond this number of scopes of a job whose schedule contains H, the first ones stand for all."""
MINUTES = 24 * 60
MOST_STARTS = 300_000
"""Starts that `load` computes. It leaves out the scopes that come after them."""

_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)

# --- collisions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Collision:
    """The fullest second of one queue, in which `count` executions are due.

    `jobs`: the jobs that have them, those with the most first. `more`: the number of other seconds
    in which there are too many.
    """

    queue: str
    instant: datetime
    count: int
    jobs: tuple[str, ...]
    more: int


class _Timing(NamedTuple):
    """When executions of a queue are due. Jobs that agree in it are enumerated once.

    The plan_times are those of `cron` in (after, through]. Each is due `delay` seconds later, over
    `spread` seconds.
    """

    queue: str
    cron: Cron
    after: datetime
    through: datetime
    delay: int
    spread: int

    def seconds(self) -> Iterator[int]:
        """Yield the seconds since 1970 in which executions are due."""
        for plan_time in self.cron.plan_times(self.after, self.through):
            first = int(plan_time.timestamp()) + self.delay
            yield from range(first, first + self.spread)

    def is_due(self, second: int) -> bool:
        """Return whether executions are due in this second."""
        last = datetime.fromtimestamp(second - self.delay, UTC)
        low, high = max(self.after, last - self.spread * _SECOND), min(self.through, last)
        return low < high and self.cron.count(low, high) > 0


Loads = Mapping[_Timing, Mapping[str, float]]
"""The executions that each job has for each plan_time, by when they are due."""


def collisions(
    jobs: Sequence[Job],
    after: datetime,
    through: datetime,
    most: int,
    calendars: Mapping[str, Calendar],
) -> list[Collision]:
    """Return the queues for which more than `most` executions of one second are due, by name.

    `calendars`: those that the jobs name.
    The plan_times are those in (after, through]. Jitter spreads the executions of a plan_time
    evenly, so each second of the jitter counts its share. Raises CronError.
    """
    loads = _loads(jobs, after, through, calendars)
    due: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for timing, executions in loads.items():
        share = sum(executions.values()) / timing.spread
        seconds = due[timing.queue]
        for second in timing.seconds():
            seconds[second] += share
    found = []
    for queue, seconds in sorted(due.items()):
        crowded = {second: load for second, load in seconds.items() if round(load) > most}
        if crowded:
            fullest = min(crowded, key=lambda second: (-crowded[second], second))
            found.append(Collision(
                queue=queue,
                instant=datetime.fromtimestamp(fullest, UTC),
                count=round(crowded[fullest]),
                jobs=_jobs_due(loads, queue, fullest),
                more=len(crowded) - 1,
            ))  # fmt: skip
    return found


def _loads(
    jobs: Sequence[Job], after: datetime, through: datetime, calendars: Mapping[str, Calendar]
) -> Loads:
    loads: dict[_Timing, dict[str, float]] = defaultdict(dict)
    for job in jobs:
        scopes = job.scopes if job.scopes is not None else (GLOBAL,)
        varies = job.schedule is not None and "h" in job.schedule.lower()
        sample = scopes[: SAMPLE if varies else 1]
        for scope in sample:
            cron = cron_in(job, scope, calendars.get(job.calendar or ""))
            if cron is not None:
                delay = job.schedule_delay // _SECOND
                spread = max(1, ceil(job.jitter / _SECOND))
                timing = _Timing(job.queue, cron, *lifetime(job, after, through), delay, spread)
                there = loads[timing].get(job.name, 0.0)
                loads[timing][job.name] = there + len(scopes) / len(sample)
    return loads


def _jobs_due(loads: Loads, queue: str, second: int) -> tuple[str, ...]:
    """Return the jobs with executions due in this second, those with the most first."""
    found: dict[str, float] = defaultdict(float)
    for timing, executions in loads.items():
        if timing.queue == queue and timing.is_due(second):
            for name, count in executions.items():
                found[name] += count / timing.spread
    return tuple(sorted(found, key=lambda name: -found[name]))


# --- executions at once ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Planned:
    """One scope of a job, whose executions take `seconds`. `calendar`: the one that it names."""

    job: Job
    scope: str
    seconds: float
    calendar: Calendar | None = None

    @property
    def key(self) -> ScopeKey:
        return ScopeKey(self.job.name, self.job.scope_kind, self.scope)


@dataclass(frozen=True, slots=True)
class Share:
    """What one scope adds to a minute: `running` is its average number of executions in it."""

    key: ScopeKey
    running: float


@dataclass(frozen=True, slots=True)
class Peak:
    """One of the minutes with the greatest load, and the scopes that make most of it."""

    minute: int
    starts: int
    running: float
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """The load by minute from `start` on: planned starts, and the average number that runs.

    `left_out`: scopes that are not in it, because there are too many starts or because their
    schedule is invalid.
    """

    start: datetime
    starts: Sequence[int]
    running: Sequence[float]
    peaks: Sequence[Peak]
    scopes: int
    left_out: int

    def at(self, minute: int) -> datetime:
        """Return the instant at which a minute begins."""
        return self.start + minute * _MINUTE


def load(planned: Sequence[Planned], now: datetime, *, peaks: int = 10, shares: int = 5) -> Load:
    """Return the load of the 24 hours from the minute of `now` on, which has no starts yet.

    Each execution runs for the seconds of its scope, from its due_at on.
    """
    start = now.replace(second=0, microsecond=0)
    starts, running = [0] * MINUTES, [0.0] * MINUTES
    own: list[tuple[ScopeKey, array[float]]] = []
    left, total = 0, 0
    for one in planned:
        try:
            at = _starts(one, now, start)
        except ValueError:
            left += 1
            continue
        if total + len(at) > MOST_STARTS:
            left += 1
            continue
        total += len(at)
        mine = _running(at, one)
        for second in at:
            starts[int(second // 60)] += 1
        for minute, value in enumerate(mine):
            if value:
                running[minute] += value
        own.append((one.key, mine))
    highest = sorted(range(MINUTES), key=lambda m: (-running[m], -starts[m], m))[:peaks]
    found = [
        Peak(minute, starts[minute], running[minute], _shares(own, minute, shares))
        for minute in highest
        if running[minute] or starts[minute]
    ]
    return Load(start, starts, running, found, len(planned), left)


def _starts(one: Planned, now: datetime, start: datetime) -> list[float]:
    """Return the due_at of each plan_time in seconds after `start`. Raises CronError."""
    cron = cron_in(one.job, one.scope, one.calendar)
    if cron is None:
        return []
    job, key = one.job, one.key
    lag = job.schedule_delay + job.jitter
    coming = cron.plan_times(*lifetime(job, now - lag, start + MINUTES * _MINUTE))
    found = []
    for plan_time in islice(coming, MOST_STARTS + 1):
        due = due_at(job, key, plan_time)
        second = (due - start).total_seconds()
        if now < due and second < MINUTES * 60:
            found.append(second)
    return found


def _running(starts: Sequence[float], one: Planned) -> "array[float]":
    """Return the average number of executions that run in each minute."""
    partial, change = [0.0] * (MINUTES + 1), [0] * (MINUTES + 1)
    for second in starts:
        end = min(second + one.seconds, MINUTES * 60.0)
        first, last = int(second // 60), int(end // 60)
        if first == last:
            partial[first] += end - second
            continue
        partial[first] += 60 * (first + 1) - second
        partial[last] += end - 60 * last
        change[first + 1] += 1
        change[last] -= 1
    found, full = array("d"), 0
    once = one.job.overlap != Overlap.ALLOW
    for minute in range(MINUTES):
        full += change[minute]
        value = full + partial[minute] / 60
        found.append(min(value, 1.0) if once else value)
    return found


def _shares(
    own: Sequence[tuple[ScopeKey, "array[float]"]], minute: int, most: int
) -> tuple[Share, ...]:
    found = [Share(key, mine[minute]) for key, mine in own if mine[minute]]
    return tuple(sorted(found, key=lambda share: (-share.running, share.key))[:most])

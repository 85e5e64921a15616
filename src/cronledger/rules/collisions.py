"""Collisions: seconds in which too many executions of one queue are due.

The plan_times are those of the planner. An execution is due at plan_time + schedule_delay + jitter.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import NamedTuple

from cronledger.rules.calendars import Calendar
from cronledger.rules.firings import Firings
from cronledger.rules.model import GLOBAL, Job

SAMPLE = 1000
"""Beyond this number of scopes of a job whose schedule contains H, the first ones stand for all."""

_SECOND = timedelta(seconds=1)


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

    Each of `firings` is due `delay` seconds later, over `spread` seconds.
    """

    queue: str
    firings: Firings
    delay: int
    spread: int

    def seconds(self) -> Iterator[int]:
        """Yield the seconds since 1970 in which executions are due."""
        for plan_time in self.firings.plan_times():
            first = int(plan_time.timestamp()) + self.delay
            yield from range(first, first + self.spread)

    def is_due(self, second: int) -> bool:
        """Return whether executions are due in this second."""
        last = datetime.fromtimestamp(second - self.delay, UTC)
        return self.firings.within(last - self.spread * _SECOND, last).count() > 0


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
            calendar = calendars.get(job.calendar or "")
            firings = Firings.of(job, after, through, scope=scope, calendar=calendar)
            delay = job.schedule_delay // _SECOND
            spread = max(1, ceil(job.jitter / _SECOND))
            timing = _Timing(job.queue, firings, delay, spread)
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

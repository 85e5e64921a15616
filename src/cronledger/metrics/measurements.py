"""The counts of a replica, from which its metrics are made. This module needs no extra.

The number of series is bounded, because no label names a job, a scope or a runner.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cronledger.rules.model import RUN_BY_OTHERS, Handler

Outcome = Literal["success", "failed", "cancelled", "released", "lost"]

OUTCOMES: tuple[Outcome, ...] = ("success", "failed", "cancelled", "released", "lost")
HANDLERS = tuple(x.value for x in Handler if x not in RUN_BY_OTHERS)
STATES = ("starting", "running", "draining", "stopped")

DURATIONS = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800, 3600,
    7200, 14400, 28800, 86400,
)  # fmt: skip
LATENESSES = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600,
    21600, 86400,
)  # fmt: skip
CLAIMS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Histogram:
    """Counts seconds by bucket.

    `bounds`: the greatest value of each bucket, ascending. `counts`: the number of values of each
    bucket, and of those beyond the last bound. `sum`: the sum of all values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds


class Attempts:
    """The attempts of one queue and kind of handler that have ended."""

    __slots__ = ("durations", "outcomes")

    def __init__(self) -> None:
        self.outcomes: dict[Outcome, int] = dict.fromkeys(OUTCOMES, 0)
        self.durations = Histogram(DURATIONS)


class Measurements:
    """The counts of one replica since it began to count.

    One thread writes, and any thread may read. Every series of `queues` exists from the start, so
    that the first event is an increase. `attempts` has queue and kind of handler as its key.
    """

    def __init__(self, queues: Sequence[str]) -> None:
        self.attempts = {(queue, handler): Attempts() for queue in queues for handler in HANDLERS}
        self.lateness = {queue: Histogram(LATENESSES) for queue in queues}
        self.claims = Histogram(CLAIMS)

    def ended(self, queue: str, handler: str, outcome: Outcome, seconds: float) -> None:
        """Count an attempt that has ended, and the time of its handler."""
        attempts = self.attempts.get((queue, handler))
        if attempts is None:  # a job that no replica runs, which fails at once
            attempts = self.attempts[queue, handler] = Attempts()
        attempts.outcomes[outcome] += 1
        attempts.durations.observe(seconds)


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of a replica at one moment, with its counts.

    `loop_ages`: the seconds since the end of the last successful step of each loop.
    `clock_skew`: the clock of this host minus that of the database, in seconds; None: not known.
    """

    measurements: Measurements
    state: str
    database_reachable: bool
    slots: int
    running: int = 0
    unwritten: int = 0
    leases_lost: int = 0
    loop_errors: Mapping[str, int] = field(default_factory=dict)
    loop_ages: Mapping[str, float] = field(default_factory=dict)
    clock_skew: float | None = None

"""The load to come: the planned starts of the next 24 hours, and how many will run at once.

The plan_times are computed as `verify` computes them. Each is assumed to run for the median
duration of its scope, from its due_at on. Retries, requested executions and waiting are not
foreseen, so this is what the schedules alone ask for.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from cronledger.audit.walk import Definition, due_at, walk
from cronledger.rules.model import ScopeKey

MINUTES = 24 * 60
MOST_STARTS = 300_000
"""Starts that are computed. The scopes that come after them are left out."""

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Planned:
    """One scope of a job. `seconds`: its median duration; `once`: it never runs beside itself."""

    key: ScopeKey
    definition: Definition
    seconds: float
    once: bool


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
    """Return the load of the 24 hours from the minute of `now` on, which has no starts yet."""
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
    """Return the due_at of each plan_time in seconds after `start`. Raises ValueError."""
    definition = one.definition
    spread = definition.schedule_delay + definition.jitter
    coming = walk(definition, one.key, now - spread, start + MINUTES * _MINUTE)
    found = []
    for plan_time in islice(coming, MOST_STARTS + 1):
        due = due_at(definition, one.key, plan_time) if spread else plan_time
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
    for minute in range(MINUTES):
        full += change[minute]
        value = full + partial[minute] / 60
        found.append(min(value, 1.0) if one.once else value)
    return found


def _shares(
    own: Sequence[tuple[ScopeKey, "array[float]"]], minute: int, most: int
) -> tuple[Share, ...]:
    found = [Share(key, mine[minute]) for key, mine in own if mine[minute]]
    return tuple(sorted(found, key=lambda share: (-share.running, share.key))[:most])

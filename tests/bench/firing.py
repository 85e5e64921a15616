"""Schedules that are due at known instants, and when their handlers were called.

Scripts of peers import this module, so it needs nothing of cronledger.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

PUNCTUAL_SECONDS = 0.05
PATIENCE_SECONDS = 60.0
"""How long after the last due instant a call still counts."""


def now() -> float:
    """Return the clock of the host, which is that of the server, in seconds since the epoch."""
    return time.clock_gettime(time.CLOCK_REALTIME)


class Firing(NamedTuple):
    """`schedules`, each of which is due at `first` and at each of the `times - 1` seconds after it.

    `first`: a whole minute in seconds since the epoch. A schedule that is due once is a cron
    expression with an hour and a minute.
    """

    schedules: int
    times: int
    first: int

    @property
    def due(self) -> int:
        return self.schedules * self.times

    @property
    def last(self) -> int:
        """The last due instant, in seconds since the epoch."""
        return self.first + self.times - 1

    @property
    def ends(self) -> float:
        """When calls no longer count, in seconds since the epoch."""
        return self.last + PATIENCE_SECONDS

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.first, UTC)

    def minute_cron(self) -> str:
        """Return the schedule that is due at the first instant, without seconds."""
        return f"{self.at.minute} {self.at.hour} * * *"

    def cron(self) -> str:
        """Return the schedule with the second as its sixth field, as croniter reads it."""
        return "* * * * * *" if self.times > 1 else f"{self.minute_cron()} 0"

    def require_ahead(self) -> None:
        """Raise RuntimeError if the first instant passed before all schedules were declared."""
        if now() >= self.first:
            raise RuntimeError(f"{self.schedules} schedules were not declared in time")

    async def wait_until_near(self) -> None:
        """Wait until three seconds before the first of several instants, so that no earlier firing
        is still in progress then. A schedule that is due once has no earlier one."""
        if self.times > 1:
            await asyncio.sleep(max(0.0, self.first - 3 - now()))


class Outcome(NamedTuple):
    """How many calls were due and came, how many of them within 50 ms, and the seconds from the
    first due instant to the last call."""

    due: int
    called: int
    punctual: int
    last: float


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of a firing: when each (schedule, due instant) was called, in seconds since the
    epoch."""

    firing: Firing
    found: dict[tuple[int, int], float] = field(default_factory=dict)
    _complete: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, schedule: int, due: float) -> None:
        """Record that a schedule is called now for the instant `due`, unless that is another one
        than those of the firing, or the time is up."""
        at = now()
        if self.firing.first <= due <= self.firing.last and at <= self.firing.ends:
            self.found.setdefault((schedule, round(due)), at)
        if self.is_complete():
            self._complete.set()

    def is_complete(self) -> bool:
        return len(self.found) >= self.firing.due or now() >= self.firing.ends

    async def complete(self) -> None:
        """Wait until all calls have come, or no longer count."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._complete.wait(), self.firing.ends - now())

    def outcome(self) -> Outcome:
        punctual = sum(at - due <= PUNCTUAL_SECONDS for (_, due), at in self.found.items())
        last = max(self.found.values(), default=self.firing.first) - self.firing.first
        return Outcome(self.firing.due, len(self.found), punctual, last)

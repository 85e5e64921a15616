"""Loops: each drives one `step()`, sleeps as long as it answers, and outlives what it raises."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic

import psycopg
import structlog

from cronledger.ledger.database import is_away

log = structlog.get_logger(__name__)

Step = Callable[[], Awaitable[float | None]]

BACKOFF = (0.1, 0.25, 0.5, 1.0, 2.0)
STUCK_SECONDS = 120.0
INSIST_SECONDS = 1.0
QUIET_SECONDS = 60.0


@dataclass(eq=False, slots=True)
class Loop:
    """One driven step: when it last began, and what wakes it."""

    name: str
    step: Step
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    at: float = field(default_factory=monotonic)
    busy: bool = False
    last: bool = False  # ends after the step it is in
    failures: int = 0
    said: tuple[type[Exception] | None, float] = (None, 0.0)  # the last error logged, and when
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class LoopSeen:
    """`step_age_s`: since its step began; `busy`: it is in it; `failures`: of the last steps."""

    step_age_s: float
    busy: bool
    failures: int


class Loops:
    """The loops of one replica by name. `away` is called when the database stopped answering; who
    hears from it again calls `answered`."""

    def __init__(self, away: Callable[[], None]) -> None:
        self._away = away
        self._loops: dict[str, Loop] = {}
        self.away_since: float | None = None
        self._said_away = False
        self.database_errors = 0

    def drive(self, name: str, step: Step, wake: asyncio.Event | None = None) -> None:
        """`step` is called now, and again when it said, or when `wake` is set."""
        loop = Loop(name, step, wake or asyncio.Event())
        self._loops[name] = loop
        loop.task = asyncio.create_task(self._run(loop), name=f"cronledger {name}")

    def wake(self, name: str) -> None:
        """The loop steps again now, if it is driven; a step that runs is followed by another."""
        if name in self._loops:
            self._loops[name].wake.set()

    async def finish(self, name: str, seconds: float) -> bool:
        """The loop ended after the step it is in; False: not within `seconds`, it goes on."""
        loop = self._loops.get(name)
        if loop is None:
            return True
        assert loop.task is not None
        loop.last = True
        done, _ = await asyncio.wait([loop.task], timeout=seconds)
        return bool(done)

    async def halt(self, *names: str) -> None:
        """These (all of them, when none is named) step no more: they are cancelled where they
        wait."""
        left = set()
        for name in names or tuple(self._loops):
            loop = self._loops.pop(name, None)
            if loop is not None and loop.task is not None:
                # Who gets a connection of the pool in the tick of its cancellation is not told.
                loop.last = True
                left.add(loop.task)
        while left:
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=INSIST_SECONDS)

    def answered(self) -> None:
        """The database answered."""
        if self.away_since is not None:
            if self._said_away:
                log.info("database_back", away_s=round(monotonic() - self.away_since, 1))
            self.away_since, self._said_away = None, False

    def stuck(self) -> str | None:
        """The name of a loop that has been in one step for two minutes."""
        now = monotonic()
        return next(
            (x.name for x in self._loops.values() if x.busy and now - x.at > STUCK_SECONDS), None
        )

    def last_step(self, name: str) -> float | None:
        """When the loop last began a step, monotonic; None: it is not driven."""
        return self._loops[name].at if name in self._loops else None

    def seen(self) -> dict[str, LoopSeen]:
        """How each driven loop is. Any thread may ask."""
        now = monotonic()
        return {
            x.name: LoopSeen(round(now - x.at, 3), x.busy, x.failures)
            for x in tuple(self._loops.values())
        }

    async def _run(self, loop: Loop) -> None:
        while True:
            # Before the step: a wake from here on is answered by another one.
            loop.wake.clear()
            loop.at, loop.busy = monotonic(), True
            try:
                delay = await loop.step()
                loop.failures = 0
            except Exception as error:  # noqa: BLE001 - no error of a step may end its loop
                delay = self._failed(loop, error)
            loop.busy = False
            if loop.last:
                return
            if delay == 0:
                await asyncio.sleep(0)
                continue
            # Not wait_for: it swallows a cancellation in the tick in which the wait ends.
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await loop.wake.wait()

    def _failed(self, loop: Loop, error: Exception) -> float:
        """Log it once per trouble, and per minute; answers the wait before the next try."""
        delay = BACKOFF[min(loop.failures, len(BACKOFF) - 1)]
        loop.failures += 1
        self.database_errors += isinstance(error, psycopg.Error)
        if is_away(error):
            if self.away_since is None:
                self.away_since = monotonic()
                self._away()
            # One that fails on and on while the others are answered has said so.
            if loop.failures == 1 and not self._said_away:
                self._said_away = True
                log.warning("database_away", error=str(error).partition("\n")[0], loop=loop.name)
        elif loop.failures in (1, 10) or loop.failures % 100 == 0:
            # One that fails only when it has something to write often fails for the first time.
            kind, at = loop.said
            if loop.failures > 1 or kind is not type(error) or monotonic() - at > QUIET_SECONDS:
                loop.said = type(error), monotonic()
                log.error("step_failed", loop=loop.name, failures=loop.failures, exc_info=error)
        return delay * (0.75 + random.random() / 2)

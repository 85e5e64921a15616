"""Loops: each one calls a `step()` repeatedly, sleeps in between, and survives its errors."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic

import psycopg

from cronledger.engine.event import Event
from cronledger.engine.log_throttle import QUIET_SECONDS, LogThrottle, reason
from cronledger.ledger import identity
from cronledger.ledger.database_errors import is_unreachable, refused_connection_remedy
from cronledger.logs.loggers import get_logger

log = get_logger(__name__)

Step = Callable[[], Awaitable[float | None]]

BACKOFF = (0.1, 0.25, 0.5, 1.0, 2.0)
STUCK_SECONDS = 120.0
FAILED_SECONDS = 60.0
"""The time for which the error of a loop that failed repeatedly is reported after its end."""
CANCEL_AGAIN_SECONDS = 1.0
SUSPECTED = 10
"""The number of lost connections after which a loop is reported although other loops succeed."""


async def end(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel tasks, repeatedly, and wait for their end.

    A task that receives a pooled connection while it is cancelled loses the cancellation. With
    Python 3.11, so does each wait of psycopg before 3.3 that ends in this tick.
    """
    while tasks:
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=CANCEL_AGAIN_SECONDS)


@dataclass(eq=False, slots=True)
class Loop:
    """One driven step.

    `at`: the monotonic instant at which the last step began. `busy`: that step has not ended.
    `sleep`: the wait for the next step, if it is under way. `latest`: when the next step has to
    begin, in the time of the event loop. `observes_clock`: the step reads the database's clock.
    `at_once`: a step that returns 0 is followed by the next one before other tasks run, because the
    next one sends a statement first, and the other tasks run while the server executes it.
    `last`: the loop ends after this step. `succeeded`: the monotonic instant at which its last
    successful step ended, or at which the loop was created. `error`: the error of the last step, or
    None. `logged`: the last error logged, and when. `failed`: the last error of repeated failures
    while the database was reachable, and when.
    """

    name: str
    step: Step
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    observes_clock: bool = False
    at_once: bool = False
    at: float = field(default_factory=monotonic)
    busy: bool = False
    sleep: asyncio.Timeout | None = None
    latest: float | None = None
    last: bool = False
    failures: int = 0
    succeeded: float = field(default_factory=monotonic)
    error: str | None = None
    logged: tuple[type[Exception] | None, float] = (None, 0.0)
    failed: tuple[str, float] | None = None
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class LoopStats:
    """The state of one loop.

    `step_age_s`: the seconds since its last step began. `busy`: that step has not ended.
    `failures`: the steps that have failed since the last success, the last of them with `error`.
    """

    step_age_s: float
    busy: bool
    failures: int
    error: str | None


class Loops:
    """The loops of one replica by name.

    Events: `unreachable`, a loop that reads the database's clock cannot reach the database;
    `suspected`, any other loop cannot, because it may have lost only its own connection;
    `recovered`, a check-in has succeeded (`answered`) after the database was unreachable or had
    another ledger.

    `elsewhere`: the error if the database contains another ledger than the runner's own, or None.
    `became` returns whether the runner's own ledger has become the other one.

    `errors`: the steps of each loop that failed, also of loops that have ended.
    """

    def __init__(
        self, became: Callable[[identity.OtherLedger], bool] = lambda other: False
    ) -> None:
        self._became = became
        self.unreachable = Event[[]]()
        self.suspected = Event[[]]()
        self.recovered = Event[[]]()
        self.elsewhere: str | None = None
        self._loops: dict[str, Loop] = {}
        self.away_since: float | None = None
        self._away_logged = False
        self._lines = LogThrottle()
        self.database_errors = 0
        self.errors: Counter[str] = Counter()

    def drive(
        self,
        name: str,
        step: Step,
        wake: asyncio.Event | None = None,
        *,
        observes_clock: bool = False,
        at_once: bool = False,
    ) -> None:
        """Call `step` now, and again after the delay that it returns or when `wake` is set."""
        loop = Loop(name, step, wake or asyncio.Event(), observes_clock, at_once)
        self._loops[name] = loop
        self.errors.setdefault(name, 0)
        loop.task = asyncio.create_task(self._run(loop), name=f"cronledger {name}")

    def wake(self, name: str) -> None:
        """Make the loop step now, or again after its current step."""
        if name in self._loops:
            self._loops[name].wake.set()

    def wake_within(self, name: str, seconds: float) -> None:
        """Make the loop step in `seconds` at the latest, or after its current step if it has one.

        A loop that would step earlier is not affected.
        """
        loop = self._loops.get(name)
        if loop is None:
            return
        loop.latest = _earliest(loop.latest, asyncio.get_running_loop().time() + seconds)
        if loop.sleep is not None and not loop.sleep.expired():
            loop.sleep.reschedule(_earliest(loop.sleep.when(), loop.latest))

    async def finish(self, name: str, seconds: float) -> bool:
        """End the loop after its current step. Return False if that takes more than `seconds`."""
        loop = self._loops.get(name)
        if loop is None:
            return True
        assert loop.task is not None
        loop.last = True
        done, _ = await asyncio.wait([loop.task], timeout=seconds)
        return bool(done)

    async def halt(self, *names: str) -> None:
        """Cancel these loops, or all of them when none is named, and wait for their end."""
        left = set()
        for name in names or tuple(self._loops):
            loop = self._loops.pop(name, None)
            if loop is not None and loop.task is not None:
                loop.last = True  # a lost cancellation ends the loop, too
                left.add(loop.task)
        await end(left)

    def answered(self) -> None:
        """Note that the database responded."""
        elsewhere, self.elsewhere = self.elsewhere, None
        since, self.away_since = self.away_since, None
        logged, self._away_logged = self._away_logged, False
        if elsewhere is not None:
            log.info("own_ledger_found")
        if since is not None and logged:
            log.info("database_recovered", outage_s=round(monotonic() - since, 1))
        if elsewhere is not None or since is not None:
            self.recovered()

    def stuck(self) -> str | None:
        """Return the name of a loop that has been in one step for two minutes, or None."""
        now = monotonic()
        return next(
            (x.name for x in self._loops.values() if x.busy and now - x.at > STUCK_SECONDS), None
        )

    def last_step(self, name: str) -> float | None:
        """Return when the loop last began a step, monotonic, or None if it is not driven."""
        return self._loops[name].at if name in self._loops else None

    def stats(self) -> dict[str, LoopStats]:
        """Return the state of each loop. Any thread may call this."""
        now = monotonic()
        return {
            x.name: LoopStats(round(now - x.at, 3), x.busy, x.failures, x.error)
            for x in tuple(self._loops.values())
        }

    def ages(self) -> dict[str, float]:
        """Return the seconds since the last successful step of each loop. Any thread may call this.

        A loop that has had none has the seconds since it was created.
        """
        now = monotonic()
        return {x.name: now - x.succeeded for x in tuple(self._loops.values())}

    def failing(self) -> dict[str, str]:
        """Return the errors of the loops whose last step failed. Any thread may call this."""
        return {x.name: x.error for x in tuple(self._loops.values()) if x.error is not None}

    def failed(self) -> dict[str, str]:
        """Return the errors of the loops that failed repeatedly, now or within the last minute.

        Failures while the database is unreachable do not count. Any thread may call this.
        """
        now = monotonic()
        return {
            x.name: x.failed[0]
            for x in tuple(self._loops.values())
            if x.failed is not None and now - x.failed[1] < FAILED_SECONDS
        }

    def any_failing(self) -> bool:
        """Return whether a loop fails, or has failed repeatedly within the last minute."""
        return bool(self.failing() or self.failed())

    async def _run(self, loop: Loop) -> None:
        while True:
            # Before the step: a wake from here on causes another one.
            loop.wake.clear()
            loop.at, loop.busy, loop.latest = monotonic(), True, None
            try:
                delay = await loop.step()
                loop.failures, loop.error, loop.succeeded = 0, None, monotonic()
            except Exception as error:  # noqa: BLE001 - no error of a step may end its loop
                delay = self._failed(loop, error)
            loop.busy = False
            if loop.last:
                return
            if delay == 0:
                if not loop.at_once:
                    await asyncio.sleep(0)
                continue
            planned = None if delay is None else asyncio.get_running_loop().time() + delay
            # Not wait_for, which swallows a cancellation in the tick in which the wait ends.
            with suppress(TimeoutError):
                async with asyncio.timeout_at(_earliest(planned, loop.latest)) as loop.sleep:
                    await loop.wake.wait()
            loop.sleep = None

    def _failed(self, loop: Loop, error: Exception) -> float:
        """Note and report the failure. Return the seconds until the retry."""
        delay = BACKOFF[min(loop.failures, len(BACKOFF) - 1)]
        loop.failures += 1
        self.errors[loop.name] += 1
        loop.error = reason(error)
        self.database_errors += isinstance(error, psycopg.Error)
        if (other := identity.other_ledger(error)) is not None:
            self._report_elsewhere(other)
        elif not is_unreachable(error):
            if loop.failures > 1:
                loop.failed = loop.error, monotonic()
            if loop.failures == 2 and loop.name != "check_in":
                self.wake("check_in")  # which publishes the error
            self._report(loop, error)
        elif loop.observes_clock:
            self._report_away(loop, loop.error, refused_connection_remedy(error))
        elif self.away_since is None:
            self.suspected()
            if loop.failures >= SUSPECTED:
                self._report(loop, error)
        return delay * (0.75 + random.random() / 2)

    def _report_elsewhere(self, other: identity.OtherLedger) -> None:
        if self._became(other):
            return
        begins, self.elsewhere = self.elsewhere is None, other.why
        if begins:
            self.unreachable()  # the runner's own ledger may change meanwhile
        if self._lines.due(other.why) or begins:
            self._lines.note(other.why)
            log.error("other_ledger_found", reason=other.why, remedy=identity.RETURN)

    def _report_away(self, loop: Loop, why: str, remedy: str | None) -> None:
        if self.away_since is None:
            self.away_since = monotonic()
            self.unreachable()
        due = self._lines.due(why)
        # The first failure of a new outage is logged, however soon it follows the last one. A loop
        # that keeps failing while another one succeeds does not begin a new outage.
        if due or (loop.failures == 1 and not self._away_logged):
            self._lines.note(why)
            self._away_logged = True
            outage_s = round(monotonic() - self.away_since, 1)
            known = {} if remedy is None else {"remedy": remedy}
            log.warning(
                "database_unreachable", error=why, loop=loop.name, outage_s=outage_s, **known
            )

    def _report(self, loop: Loop, error: Exception) -> None:
        """Log the error once per problem, and once per minute."""
        if loop.failures in (1, 10) or loop.failures % 100 == 0:
            # A loop that fails only when it has something to write often fails for the first time.
            kind, at = loop.logged
            if loop.failures > 1 or kind is not type(error) or monotonic() - at > QUIET_SECONDS:
                loop.logged = type(error), monotonic()
                log.error(
                    "step_failed", loop=loop.name, failures=loop.failures, error=reason(error),
                    exc_info=error,
                )  # fmt: skip


def _earliest(*instants: float | None) -> float | None:
    return min((instant for instant in instants if instant is not None), default=None)

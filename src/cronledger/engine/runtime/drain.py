"""A drain: it ends a runner, and reports how the running executions ended."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from cronledger.engine.claiming.claimer import Claimer
from cronledger.engine.running.ended import Ended
from cronledger.engine.running.executor import Executor
from cronledger.engine.running.finisher import Finisher
from cronledger.engine.runtime.diagnostics import Active
from cronledger.engine.runtime.loops import Loops
from cronledger.logs.loggers import get_logger
from cronledger.rules.error_codes import ErrorCode
from cronledger.rules.model import Status

log = get_logger(__name__)

CLAIM_SECONDS = 2.0
"""The time in seconds for which a drain waits for a claim that is in flight."""


@dataclass(frozen=True, slots=True)
class DrainReport:
    """The ends of the executions that were running when a drain began.

    `finished`: ended by themselves, or CANCELLED on request. `released`: PENDING again, for another
    runner. `failed`: FAILED `shutdown`. `unfinished`: the outcome is not written yet, or the
    handler did not end. `cut_off`: those that still ran at the deadline, in their state of that
    moment. An execution whose lease was lost is not counted, because another runner or the sweeper
    has written its end.
    """

    finished: int = 0
    released: int = 0
    failed: int = 0
    unfinished: int = 0
    cut_off: tuple[Active, ...] = ()


@dataclass(slots=True)
class Drain:
    """One drain: stops claiming, waits for the executions, stops the rest, and reports."""

    runner: str
    claimer: Claimer
    executor: Executor
    finisher: Finisher
    loops: Loops
    _began: bool = field(default=False, init=False)
    _ended: list[Ended] = field(default_factory=list, init=False)
    _cut_off: tuple[Active, ...] = field(default=(), init=False)

    def ended(self, ended: Sequence[Ended]) -> None:
        """Note that these outcomes are committed. Those from before the drain do not count."""
        if self._began:
            self._ended.extend(ended)

    async def stop_claiming(self) -> None:
        """Stop claiming. A claim in flight has CLAIM_SECONDS to finish, and is then cut off."""
        self._began = True
        if self.claimer.in_flight:
            await self.loops.finish("dispatcher", CLAIM_SECONDS)
        await self.loops.halt("dispatcher", "scopes", "listener")

    async def wait_idle(self, patience: float, aborting: asyncio.Event) -> None:
        """Wait until no handler runs, `patience` seconds have passed, or `aborting` is set.

        `patience` may be negative, if the claim that was in flight has used it up.
        """
        idle = asyncio.ensure_future(self.executor.wait_idle())
        stop = asyncio.ensure_future(aborting.wait())
        await asyncio.wait(
            [idle, stop], timeout=max(0.0, patience), return_when=asyncio.FIRST_COMPLETED
        )
        idle.cancel()
        stop.cancel()

    async def stop_running(self, left: Sequence[Active]) -> None:
        """Stop the handlers of the executions that are `left` at the deadline."""
        self._cut_off = tuple(left)
        if left:
            self._report_deadline()
        if not self.executor.running:
            return
        for running in self.executor.executions():
            self.executor.stop(running, "shutdown")
        with suppress(TimeoutError):
            async with asyncio.timeout(self.executor.GRACE + 1):
                await self.executor.wait_idle()
        for running in self.executor.executions():
            self.executor.abandon(running)

    def _report_deadline(self) -> None:
        log.warning(
            "drain_deadline_passed",
            runner=self.runner,
            stopping=len(self._cut_off),
            executions=[
                {
                    "execution_id": x.execution_id,
                    "job": x.job,
                    "scope": x.scope_id,
                    "age_s": x.age_s,
                }
                for x in self._cut_off
            ],
        )

    def report(self) -> DrainReport:
        """Return how the executions ended."""
        released = sum(ended.release for ended in self._ended)
        failed = sum(
            not x.release
            and (x.outcome.status, x.outcome.error_code) == (Status.FAILED, ErrorCode.SHUTDOWN)
            for x in self._ended
        )
        # An abandoned handler still runs although its FAILED is written. It counts once, as failed.
        written = {ended.lease.token for ended in self._ended}
        left = {x.lease.token for x in self.executor.executions()} - written
        return DrainReport(
            finished=len(self._ended) - released - failed,
            released=released,
            failed=failed,
            unfinished=max(len(left), self.finisher.waiting),
            cut_off=self._cut_off,
        )

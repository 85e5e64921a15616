"""The housekeeping of every runner: stale rows fail, pauses end, blocks that went are noticed."""

from collections.abc import Callable
from datetime import timedelta
from time import monotonic

import structlog

from cronledger.engine.clock import DatabaseClock
from cronledger.engine.leases import Leases
from cronledger.ledger.database import AsyncPool, step_transaction
from cronledger.ledger.statements import Statements
from cronledger.rules.model import ExecutionKey

log = structlog.get_logger(__name__)

FULL_ROUND = 30.0
MAINTENANCE = 3600.0


class Sweeper:
    """One step sweeps what is stale and, less often, repairs what a crash left behind.

    `stagger` in [0, 1) spreads the rounds of the replicas. `rearmed` is called when something is
    due now. `claiming` says whether a claim of this runner is in flight.
    """

    def __init__(
        self,
        pool: AsyncPool,
        statements: Statements,
        clock: DatabaseClock,
        leases: Leases,
        *,
        runner: str,
        retention: timedelta,
        width: timedelta,
        rearmed: Callable[[], None],
        claiming: Callable[[], bool],
        stagger: float = 0.0,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._clock = clock
        self._leases = leases
        self._runner = runner
        self._retention = retention
        self._width = width
        self._rearmed = rearmed
        self._claiming = claiming
        self._full_at = monotonic() + FULL_ROUND * stagger
        self._maintain_at = monotonic()

    async def step(self) -> float:
        """Answers the seconds until the next full round; `sweep` may be asked for earlier."""
        if not self._clock.known:
            return 1.0
        await self.sweep()
        if monotonic() >= self._full_at:
            await self._repair()
            self._full_at = monotonic() + FULL_ROUND
        if monotonic() >= self._maintain_at:
            await self._maintain()
            self._maintain_at = monotonic() + MAINTENANCE
        return max(0.1, self._full_at - monotonic())

    async def sweep(self) -> None:
        """Stale executions that nobody may steal are FAILED; pauses that ended are lifted."""
        async with self._pool.connection() as c:
            async with step_transaction(c, 2000):
                swept = await self._statements.sweep_stale(c, self._clock.trusted_since)
            rows = await swept.fetchall()
            async with step_transaction(c, 2000):
                resumed = await self._statements.resume_paused(c)
                if rows:
                    await self._statements.rearm_unblocked(
                        c, [(row.key.scope, row.queue) for row in rows]
                    )
            names = [row[0] for row in await resumed.fetchall()]
        for row in rows:
            log.warning(
                "execution_swept", job=row.key.job_name, scope=row.key.scope_id,
                plan_time=row.key.plan_time.isoformat(), execution_id=row.id, status=row.status,
                was_held_by=row.runner_id,
            )  # fmt: skip
        for name in names:
            log.info("pause_ended", job=name)
        if rows or names:
            self._rearmed()

    def repair_soon(self) -> None:
        """The next step is a full round: a claim's COMMIT had an unknown outcome."""
        self._full_at = monotonic()

    async def _repair(self) -> None:
        async with self._pool.connection() as c:
            async with step_transaction(c, 2000):
                rearmed = await self._statements.rearm_left_behind(c)
            async with step_transaction(c, 2000):
                await self._statements.reap_runners(c)
            if await rearmed.fetchall():
                self._rearmed()
        await self.give_back_unheld()

    async def give_back_unheld(self) -> None:
        """What bears this runner's name and a token it does not hold was claimed by a COMMIT whose
        answer was lost: it never started, so it goes back.

        Never beside a claim in flight, whose tokens are not in memory yet; and only what is still
        unheld after a second look at the set, taken after the rows were read.
        """
        if self._claiming():
            return
        async with self._pool.connection() as c:
            found = await (
                await self._statements.find_unheld(c, self._runner, self._leases.tokens())
            ).fetchall()
            held = set(self._leases.tokens())
            unheld = [row for row in found if row[4] not in held]
            if not unheld or self._claiming():
                return
            async with step_transaction(c, 2000):
                await self._statements.give_back(
                    c,
                    [ExecutionKey(*row[:4]) for row in unheld],
                    [row[4] for row in unheld],
                    "not_started",
                    "the answer to the claim's COMMIT was lost; the handler was never started",
                )
        log.warning("claims_given_back", count=len(unheld), reason="unknown commit")
        self._rearmed()

    async def _maintain(self) -> None:
        async with self._pool.connection() as c, c.transaction():
            done = await (
                await self._statements.maintain_partitions(c, self._retention, self._width)
            ).fetchall()
        for action, subject in done:
            log.info("partitions_maintained", action=action, subject=subject)

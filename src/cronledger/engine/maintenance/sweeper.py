"""The sweeper: fails stale executions, ends pauses, and repairs what a crash left behind."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from time import monotonic

import psycopg

from cronledger.engine.clock import DatabaseClock, fetch_now
from cronledger.ledger import identity
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.rows import Swept
from cronledger.ledger.statements import Connection, Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.logger import get_logger

log = get_logger(__name__)

FULL_ROUND = 30.0
MAINTENANCE = 3600.0
REFUSED_SECONDS = 5.0


class Sweeper:
    """Each step sweeps stale executions. A full round also repairs what a crash left behind.

    The first step is a full round, so that schedules that were parked because no runner had their
    handlers are due again. `stagger` in [0, 1) spreads the later rounds of the replicas. `rearmed`
    is called when something is due now.
    """

    def __init__(
        self,
        pool: AsyncPool,
        statements: Statements,
        clock: DatabaseClock,
        *,
        retention: timedelta,
        width: timedelta,
        rearmed: Callable[[], None],
        stagger: float = 0.0,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._clock = clock
        self._retention = retention
        self._width = width
        self._rearmed = rearmed
        self._full_at = monotonic()
        self._following = FULL_ROUND * (1 + stagger)  # until the second round
        self._maintain_at = monotonic()

    async def step(self) -> float:
        """Sweep. Return the seconds until the next full round. An earlier call is allowed.

        In a database that is not the ledger's own the step does nothing, and is repeated soon.
        """
        if not self._clock.known:
            return 1.0
        try:
            return await self._round()
        except psycopg.Error as error:
            if identity.other_database_reason(error) is None:
                raise
            return REFUSED_SECONDS

    async def _round(self) -> float:
        await self.sweep()
        if monotonic() >= self._full_at:
            await self._repair()
            self._full_at, self._following = monotonic() + self._following, FULL_ROUND
        if monotonic() >= self._maintain_at:
            await self._maintain()
            self._maintain_at = monotonic() + MAINTENANCE
        return max(0.1, self._full_at - monotonic())

    def full_round(self) -> None:
        """Make the next step a full round, because the functions of this runner have changed."""
        self._full_at = monotonic()

    async def sweep(self) -> None:
        """Fail the stale executions that must not be stolen, and resume jobs whose pause ended."""
        async with self._pool.connection() as c:
            rows = await self._end_stale(c)
            async with step_transaction(c):
                resumed = await self._statements.resume_paused(c)
                if rows:
                    await self._statements.rearm_unblocked(
                        c, [(row.key.scope, row.queue) for row in rows]
                    )
            names = await resumed.fetchall()
        for row in rows:
            log.warning(
                "execution_swept", job=row.key.job_name, scope=row.key.scope_id,
                plan_time=row.key.plan_time.isoformat(), execution_id=row.id, status=row.status,
                held_by=row.runner_id,
            )  # fmt: skip
        for name in names:
            log.info("pause_ended", job=name)
        if rows or names:
            self._rearmed()

    async def _end_stale(self, c: Connection) -> Sequence[Swept]:
        """Sweep the stale executions and return them.

        Sweeps nothing if the database's clock has just leapt, because then live leases appear
        stale.
        """
        try:
            async with step_transaction(c):
                await self._statements.require_own_database(c)
                swept = await self._statements.sweep_stale(c, self._clock.trusted_since)
                rows = await swept.fetchall()
                if rows:
                    sent = monotonic()
                    now = await fetch_now(await self._statements.read_clock(c))
                    if not self._clock.agrees(now, sent, monotonic()):
                        raise _LeaptError
        except _LeaptError:  # rolled back
            self._clock.distrust()
            return ()
        return rows

    async def _repair(self) -> None:
        async with self._pool.connection() as c:
            async with step_transaction(c):
                await self._statements.require_own_database(c)
                rearmed = await self._statements.rearm_left_behind(c)
            async with step_transaction(c):
                settled = await self._statements.settle_left_behind(c)
            async with step_transaction(c):
                orphans = await self._statements.end_orphans(c)
            async with step_transaction(c):
                await self._statements.reap_runners(c)
            due = await rearmed.fetchall()
            ended = await orphans.fetchall()
            inputs = await settled.fetchone()
        if due or inputs:
            self._rearmed()
        if ended:
            log.info(
                "orphans_cancelled", count=len(ended), reason="their jobs are retired or deleted"
            )

    async def _maintain(self) -> None:
        async with self._pool.connection() as c:
            async with step_transaction(c):
                await self._statements.require_own_database(c)
                done = await self._statements.maintain_partitions(c, self._retention, self._width)
            rows = await done.fetchall()
        for row in rows:
            log.info("partitions_maintained", action=row.action, subject=row.subject)


class _LeaptError(Exception):
    """The database's clock leapt, so live leases may appear stale. Nothing was swept."""

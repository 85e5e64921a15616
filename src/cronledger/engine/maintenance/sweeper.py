"""The sweeper: fails stale executions, ends pauses, and repairs what a crash left behind.

It sends statements only when a check-in has found that there is something to do.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic

import psycopg

from cronledger.engine.awaited import Awaited
from cronledger.engine.clock import DatabaseClock, fetch_now
from cronledger.engine.event import Event
from cronledger.engine.maintenance.deadlines import DeadlineStep
from cronledger.engine.maintenance.hours import HourRollUp
from cronledger.ledger import identity
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.rows import CheckInReply, Swept
from cronledger.ledger.statements import Connection, Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.logs.loggers import get_logger

log = get_logger(__name__)

EXAMINE_SECONDS = 30.0
"""The longest time between two searches for what a crash left behind."""
SLACK_SECONDS = 1.0
"""A search may be later by this, because the timers of check-ins are not exact."""
MOST_GATES = 5_000
"""Gates that one transaction makes due to be checked."""
MAINTENANCE = 3600.0
HOSTS_RETIRE_AFTER = timedelta(days=7)
REPAIRS = frozenset({"schedules", "inputs", "orphans", "gates", "hosts", "runners"})
"""What a crash may leave behind: the results of the SQL function `left_behind`. One more of them,
`statistics`, is left behind by an ANALYZE of empty tables."""


class Sweeper:
    """Each step does what check-ins have found since the last one.

    A full round does everything. The first step is one, so that schedules that were parked because
    no runner had their handlers are due again. The hourly maintenance of partitions is one as well,
    so that no fault of a check-in can hide something for good. It also begins a round of the
    roll-up of hours, of which each further step does a part. Deadlines that are past are judged
    in any step. Programs that wait for an `awaited` execution are notified once it is swept.

    Events: `rearmed`, something is due now; `gates`, a gate is due to be checked; `swept`,
    an execution that a step has ended; `due_within`, the seconds in which a step has to begin.
    """

    def __init__(
        self,
        pool: AsyncPool,
        statements: Statements,
        clock: DatabaseClock,
        awaited: Awaited,
        *,
        width: timedelta,
        hosts_retire_after: timedelta = HOSTS_RETIRE_AFTER,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._clock = clock
        self._awaited = awaited
        self._width = width
        self._hosts_retire_after = hosts_retire_after
        self.wake = asyncio.Event()
        self.rearmed = Event[[]]()
        self.gates = Event[[]]()
        self.swept = Event[[Swept]]()
        self.due_within = Event[[float]]()
        self._stale = False  # leases or pauses have ended
        self._left: frozenset[str] = frozenset()
        self._hours = HourRollUp(pool, statements)
        self._deadlines = DeadlineStep(pool, statements, clock)
        self._examined_at = self._maintain_at = monotonic()

    async def step(self) -> float:
        """Do what was found. Return the seconds until the next maintenance, or the next step of it.

        In a database that is not the ledger's own the step does nothing, and waits until a check-in
        finds that it is.
        """
        if not self._clock.known:
            return 1.0
        maintains = monotonic() >= self._maintain_at
        if maintains:
            self.full_round()
        stale, left = self._stale, self._left
        self._stale, self._left = False, frozenset()
        try:
            await self._round(stale, left)
            if maintains or "statistics" in left:
                await self._maintain()
            if maintains:
                self._maintain_at = monotonic() + MAINTENANCE
                await self._deadlines.prune()
                self._hours.begin()
            await self._hours.step()
            await self._deadlines.step()
        except psycopg.Error as error:
            self._stale, self._left = self._stale or stale, self._left | left
            if identity.other_database_reason(error) is None:
                raise
            return MAINTENANCE
        if self._hours.unfinished:
            return 0.1
        rest, deadline = self._maintain_at - monotonic(), self._deadlines.wait()
        return max(0.1, rest if deadline is None else min(rest, deadline))

    async def _round(self, stale: bool, left: frozenset[str]) -> None:
        if stale:
            await self.sweep()
        if left:
            await self._repair(left)
        if left >= REPAIRS:
            self._examined_at = monotonic()

    def full_round(self) -> None:
        """Make the next step a full round, because the functions of this runner have changed."""
        self._stale, self._left = True, self._left | REPAIRS
        self._deadlines.force()

    def examines(self, *, within: float) -> bool:
        """Return whether the next check-in has to search for what a crash left behind.

        `within`: the seconds until the check-in that follows it.
        """
        latest = self._examined_at + EXAMINE_SECONDS + SLACK_SECONDS
        return not self._left >= REPAIRS and monotonic() + within > latest

    def checked_in(self, reply: CheckInReply) -> None:
        """Do what a check-in has found."""
        self._stale |= reply.next_end is not None and self._clock.until(reply.next_end) == 0
        self._deadlines.note(reply.deadline)
        if reply.left_behind is not None:
            self._left |= frozenset(reply.left_behind)
            self._examined_at = monotonic()
        if reply.refused is not None:
            return
        if self._stale or self._left:
            self.wake.set()
        if (deadline := self._deadlines.wait()) is not None:
            self.due_within(deadline)

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
                if awaited := self._awaited.among(row.id for row in rows):
                    await self._statements.notify_ended(c, awaited)
            names = await resumed.fetchall()
        for row in rows:
            log.warning(
                "execution_swept", job=row.key.job_name, scope=row.key.scope_id,
                plan_time=row.key.plan_time.isoformat(), execution_id=row.id, status=row.status,
                held_by=row.runner_id,
            )  # fmt: skip
            self.swept(row)
        for name in names:
            log.info("pause_ended", job=name)
        if rows or names:
            self.rearmed()

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

    async def _repair(self, left: frozenset[str]) -> None:
        s, due = self._statements, False
        ended: Sequence[int] = ()
        async with self._pool.connection() as c:
            async with step_transaction(c):
                await s.require_own_database(c)
                rearmed = await s.rearm_left_behind(c) if "schedules" in left else None
            if rearmed is not None:
                due = bool(await rearmed.fetchall())
            if "inputs" in left:
                async with step_transaction(c):
                    settled = await s.settle_left_behind(c)
                due = bool(await settled.fetchone()) or due
            if "orphans" in left:
                async with step_transaction(c):
                    orphans = await s.end_orphans(c)
                ended = await orphans.fetchall()
            while "gates" in left:
                async with step_transaction(c):
                    woken = await s.wake_left_gates(c, MOST_GATES)
                found = len(await woken.fetchall())
                if found:
                    self.gates()
                if found < MOST_GATES:
                    break
            if "hosts" in left:
                async with step_transaction(c):
                    followed = await s.follow_hosts(c, self._hosts_retire_after)
                changes = await followed.fetchone()
                if changes is not None and any(changes):
                    log.info("hosts_followed", **changes._asdict())
                    due = True
            if "runners" in left:
                async with step_transaction(c):
                    await s.reap_runners(c)
        if due:
            self.rearmed()
        if ended:
            log.info("orphans_cancelled", count=len(ended), reason="their jobs or hosts are gone")

    async def _maintain(self) -> None:
        async with self._pool.connection() as c:
            async with step_transaction(c):
                await self._statements.require_own_database(c)
                done = await self._statements.maintain_partitions(c, self._width)
            rows = await done.fetchall()
        for row in rows:
            log.info("partitions_maintained", action=row.action, subject=row.subject)


class _LeaptError(Exception):
    """The database's clock leapt, so live leases may appear stale. Nothing was swept."""

"""The finisher: writes the outcomes of attempts, many in one guarded statement.

An outcome stays here, and its lease is extended, until the database has accepted it or the row
shows the token of another holder.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import psycopg

from cronledger.engine.event import Event
from cronledger.engine.lease import Leases
from cronledger.engine.running.ended import Ended
from cronledger.engine.running.follow_up import FollowUp
from cronledger.ledger.connections import AsyncPool, StepConnection, StepCursor
from cronledger.ledger.database_errors import BAD_VALUE_ERRORS
from cronledger.ledger.rows import Finished
from cronledger.ledger.statements import Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.logs.loggers import get_logger
from cronledger.rules.model import Status

log = get_logger(__name__)

LARGEST_BATCH = 500
UNSTORABLE = (*BAD_VALUE_ERRORS, UnicodeError)
"""Errors that one value can cause. A lone surrogate fails before it reaches the database."""


@dataclass(slots=True)
class Settled:
    """The outcomes of a batch that need no further write.

    `committed`: the ledger has them. `dropped`: the lease was lost, or the ledger cannot store the
    outcome.
    """

    committed: list[Ended] = field(default_factory=list)
    dropped: list[Ended] = field(default_factory=list)


class Finisher:
    """Takes outcomes with `put` and writes them with `step`.

    Events: `written`, the outcomes that a write has committed, which may be none; `lost`, those
    that will never be written; `rearmed`, a schedule is due, perhaps in the past; `gates`, a gate
    is due to be checked; `unblocked`, others may start now, because an execution, a schedule
    or input was waiting. `gather`: the seconds for which a step waits for further outcomes.
    """

    def __init__(
        self,
        pool: AsyncPool,
        statements: Statements,
        leases: Leases,
        follow_up: FollowUp,
        *,
        gather: float = 0.002,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._leases = leases
        self._follow_up = follow_up
        self._gather = gather
        self._waiting: list[Ended] = []
        self._may_start = False
        self._empty = asyncio.Event()
        self._empty.set()
        self.wake = asyncio.Event()
        self.unblocked = Event[[]]()
        self.rearmed = follow_up.rearmed
        self.gates = follow_up.gates
        self.written = Event[[Sequence[Ended]]]()
        self.lost = Event[[Sequence[Ended]]]()

    def put(self, ended: Ended) -> None:
        ended.lease.ended = True
        self._waiting.append(ended)
        self._empty.clear()
        self.wake.set()

    @property
    def waiting(self) -> int:
        """The number of outcomes that are not written yet."""
        return len(self._waiting)

    def close(self) -> None:
        """Give up the outcomes that are not written yet. No step may follow."""
        self.lost(self._waiting)

    async def wait_empty(self) -> None:
        """Wait until no outcome has to be written."""
        await self._empty.wait()

    async def step(self) -> float | None:
        """Write a batch. Return the seconds until the next step, or None to wait for `wake`."""
        writes = bool(self._waiting)
        try:
            if writes:
                await self._write_batch()
            if await self._follow_up.go_on(rearm=not writes):
                self.unblocked()
        finally:
            if not self._waiting:
                self._empty.set()
        return 0 if self._waiting else self._follow_up.rest

    async def _write_batch(self) -> None:
        """Write the first outcomes that wait, and report those that are committed."""
        if len(self._waiting) < LARGEST_BATCH and self._gather:
            await asyncio.sleep(self._gather)
        batch, settled = self._waiting[:LARGEST_BATCH], Settled()
        await self._write(batch, settled)
        tokens = {ended.token for ended in (*settled.committed, *settled.dropped)}
        self._waiting = [ended for ended in self._waiting if ended.token not in tokens]
        for token in tokens:
            self._leases.remove(token)
        if settled.dropped:
            self.lost(settled.dropped)
        may_start, self._may_start = self._may_start, False
        if may_start:
            self.unblocked()
        self.written(settled.committed)

    async def _write(self, batch: Sequence[Ended], settled: Settled) -> None:
        """Write all outcomes, even if one of them holds a value that cannot be stored."""
        try:
            await self._write_once(batch, settled)
        except UNSTORABLE as error:
            if len(batch) > 1:
                middle = len(batch) // 2
                await self._write(batch[:middle], settled)
                await self._write(batch[middle:], settled)
            else:
                await self._write_without_values(batch[0], error, settled)

    async def _write_without_values(self, ended: Ended, error: Exception, settled: Settled) -> None:
        execution_id = ended.lease.claimed.id
        if ended.stripped:
            log.error("outcome_dropped", execution_id=execution_id, exc_info=error)
            settled.dropped.append(ended)
            return
        stripped = ended.without_values(error)
        log.warning("outcome_refused", execution_id=execution_id, error=stripped.outcome.error_msg)
        # If the reply to this write is lost, the next step looks for what may be committed.
        self._waiting[self._waiting.index(ended)] = stripped
        await self._write([stripped], settled)

    async def _write_once(self, batch: Sequence[Ended], settled: Settled) -> None:
        async with self._pool.connection() as c:
            written = await self._send(c, batch)
            rows = [(x, written.get(x.token)) for x in batch]
            settled.committed.extend(x.as_written(row.status) for x, row in rows if row is not None)
            # The handler's own transaction, or an earlier attempt of this write, may have left
            # input to settle.
            self._follow_up.settle_later(
                x.lease.claimed.key.scope for x, row in rows if row is None or row.has_input
            )
            missing = [x for x, row in rows if row is None]
            if missing:
                await self._look_up(c, missing, settled)

    async def _send(self, c: StepConnection, batch: Sequence[Ended]) -> dict[UUID, Finished]:
        """Write the batch in one transaction, and re-arm what waited for it in another one.

        Both are one round trip. They are two transactions, because schedules come before executions
        in the lock order, and because a claim that parks a schedule must see the outcome. If the
        second one fails, the outcomes are written nevertheless.

        Return what was written, by token.
        """
        postponed = [row for x in batch if (row := x.postponement) is not None]
        finishing = [x.row for x in batch if not x.release and x.postponement is None]
        transaction = None
        cursors: list[StepCursor[Finished]] = []
        try:
            async with c.round_trip():
                async with step_transaction(c) as transaction:
                    if finishing:
                        cursors.append(await self._statements.finish_executions(c, finishing))
                    if postponed:
                        cursors.append(await self._statements.postpone_executions(c, postponed))
                    for x in batch:
                        if x.release:
                            cursors.append(
                                await self._statements.release_executions(
                                    c, [x.lease.claimed.key], [x.token],
                                    x.outcome.error_code or "", x.outcome.error_msg or "",
                                )
                            )  # fmt: skip
                    if written := [x.lease.claimed for x in batch if x.ends_chunks]:
                        await self._statements.drop_output(c, written)
                self._may_start |= await self._follow_up.rearm(c, batch)
        except psycopg.Error:
            if transaction is None or not transaction.committed:
                raise
            self._follow_up.rearm_later(batch)  # a later step reports an error that lasts
        # These results arrived before the error, if there was one.
        return {row.token: row for cursor in cursors for row in await cursor.fetchall()}

    async def _look_up(self, c: StepConnection, missing: Sequence[Ended], settled: Settled) -> None:
        """Settle the outcomes whose write did not return their row.

        The handler's transaction or an earlier write has committed them, or their lease is lost. A
        row that is still RUNNING under its token was skipped by PostgreSQL (18 up to 18.4, see
        `UnknownCommits`), and its write is repeated.
        """
        result = await self._statements.read_leases(
            c, [x.lease.claimed.key for x in missing], [x.token for x in missing]
        )
        states = {state.token: state for state in await result.fetchall()}
        for ended in missing:
            state = states.get(ended.token)
            if state is not None and state.ours and state.status == Status.RUNNING:
                continue
            if state is not None and ended.is_committed(state):
                # Otherwise another attempt, or a later cancel, has given the status.
                # Without its token, a handler that was not ready waits for its next attempt.
                status = state.status if state.ours else Status.PENDING.value
                settled.committed.append(ended.as_written(status))
                continue
            settled.dropped.append(ended)
            if self._leases.lose(ended.token) is not None:
                log.warning(
                    "lease_lost", **ended.lease.log_fields, refused=ended.outcome.status.value
                )

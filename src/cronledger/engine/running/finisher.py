"""The finisher: writes the outcomes of attempts, many in one guarded statement.

An outcome stays here, and its lease is extended, until the database has accepted it or the row
shows the token of another holder.
"""

import asyncio
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import UUID

import psycopg

from cronledger.engine.awaited import Awaited
from cronledger.engine.lease import Lease, Leases
from cronledger.engine.log_throttle import reason
from cronledger.ledger.connections import AsyncPool, StepConnection
from cronledger.ledger.database_errors import BAD_VALUE_ERRORS, RETRYABLE_ERRORS, is_unreachable
from cronledger.ledger.rows import Ending, LeaseState
from cronledger.ledger.statements import Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.logger import get_logger
from cronledger.rules.error_codes import ErrorCode
from cronledger.rules.model import ScopeKey, Status
from cronledger.rules.outcome import Outcome, clean_text

log = get_logger(__name__)

LARGEST_BATCH = 500
LOCKED_SECONDS = 0.2
"""The time after which a schedule is re-armed, or its input settled, that another transaction had
locked before."""
UNSTORABLE = (*BAD_VALUE_ERRORS, UnicodeError)
"""Errors that one value can cause. A lone surrogate fails before it reaches the database."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of an attempt that has to be written.

    `release`: the execution returns to PENDING instead, for the reason in `outcome`.
    """

    lease: Lease
    outcome: Outcome
    duration_ms: int
    release: bool = False

    @property
    def token(self) -> UUID:
        return self.lease.token

    @property
    def row(self) -> Ending:
        """The row for the statement `finish_executions`."""
        o, claimed = self.outcome, self.lease.claimed
        return Ending(
            claimed.key, claimed.token, o.status.value, o.result_json, o.rows_affected, o.output,
            o.error_code, o.error_msg, self.duration_ms, o.retry_after, o.watermark, o.covers,
        )  # fmt: skip

    def is_committed(self, state: LeaseState | None) -> bool:
        """Return whether this state of the row shows that this outcome was committed before."""
        if state is None or state.error_code != self.outcome.error_code:
            return False
        if self.release or not state.ours:
            # A release, or a failure that is retried since: the row has another token or none, and
            # only the error_code shows who wrote it. A SUCCESS has none, and keeps its token.
            return state.error_code is not None
        # A requested cancel, which the runner may not know of yet, turns FAILED into CANCELLED.
        cancelled = self.outcome.status is Status.FAILED and state.status == Status.CANCELLED
        return state.status == self.outcome.status or cancelled


@dataclass(slots=True)
class Settled:
    """The outcomes of a batch that need no further write.

    `committed`: the ledger has them. `dropped`: the lease was lost, or the ledger cannot store the
    outcome. `may_start`: others may start now, because a schedule or an execution was waiting.
    """

    committed: list[Ended] = field(default_factory=list)
    dropped: list[Ended] = field(default_factory=list)
    may_start: bool = False

    @property
    def tokens(self) -> set[UUID]:
        return {ended.token for ended in (*self.committed, *self.dropped)}


class Written(Protocol):
    """See `Finisher`."""

    def __call__(self, ended: Sequence[Ended], *, may_start: bool) -> None: ...


class Finisher:
    """Takes outcomes with `put` and writes them with `step`.

    `written` is called after each write with the outcomes that are committed, which may be none.
    `may_start`: others may start now, because an execution, a schedule or input was waiting.
    Programs that wait for an `awaited` execution are notified once its outcome is committed.
    `gather`: the seconds for which a step waits for further outcomes.
    """

    def __init__(
        self,
        pool: AsyncPool,
        statements: Statements,
        leases: Leases,
        written: Written,
        awaited: Awaited,
        *,
        gather: float = 0.002,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._leases = leases
        self._written = written
        self._awaited = awaited
        self._gather = gather
        self._waiting: list[Ended] = []
        self._to_rearm: list[tuple[ScopeKey, str]] = []
        self._to_settle: set[ScopeKey] = set()
        self._to_notify: set[int] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.wake = asyncio.Event()

    def put(self, ended: Ended) -> None:
        self._waiting.append(ended)
        self._empty.clear()
        self.wake.set()

    @property
    def waiting(self) -> int:
        """The number of outcomes that are not written yet."""
        return len(self._waiting)

    async def wait_empty(self) -> None:
        """Wait until no outcome has to be written."""
        await self._empty.wait()

    async def step(self) -> float | None:
        """Write a batch. Return the seconds until the next step, or None to wait for `wake`."""
        if not self._waiting:
            if await self._follow_up(rearm=True):
                self._written((), may_start=True)
            return self._rest()
        if len(self._waiting) < LARGEST_BATCH and self._gather:
            await asyncio.sleep(self._gather)
        batch, settled = self._waiting[:LARGEST_BATCH], Settled()
        await self._write(batch, settled)
        self._forget(batch, settled.tokens)
        may_start = await self._follow_up(rearm=False) or settled.may_start
        if not self._waiting:
            self._empty.set()
        self._written(settled.committed, may_start=may_start)
        return 0 if self._waiting else self._rest()

    def _rest(self) -> float | None:
        return LOCKED_SECONDS if self._to_rearm or self._to_settle else None

    def _forget(self, batch: Sequence[Ended], settled: Container[UUID]) -> None:
        """Remove settled outcomes and their leases."""
        self._waiting[: len(batch)] = [x for x in batch if x.token not in settled]
        for ended in batch:
            if ended.token in settled:
                self._leases.remove(ended.token)

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
        # The handler has done its work, which must not run again because of its result.
        text = clean_text(f"the outcome could not be stored: {reason(error)}", 4000)
        succeeded = ended.outcome.status is Status.SUCCESS
        code = ended.outcome.error_code if succeeded else None
        plain = replace(
            ended.outcome, result_json=None, output=None, rows_affected=None,
            error_code=code or ErrorCode.RESULT_INVALID, error_msg=text,
        )  # fmt: skip
        log.warning("outcome_refused", execution_id=ended.lease.claimed.id, error=text)
        try:
            await self._write_once([replace(ended, outcome=plain)], settled)
        except UNSTORABLE:
            log.exception("outcome_dropped", execution_id=ended.lease.claimed.id)
            settled.dropped.append(ended)

    async def _write_once(self, batch: Sequence[Ended], settled: Settled) -> None:
        async with self._pool.connection() as c:
            written = await self._send(c, batch, settled)
            settled.committed.extend(x for x in batch if x.token in written)
            # Whoever wrote a missing row may have left input to settle as well.
            self._to_settle.update(
                x.lease.claimed.key.scope for x in batch if written.get(x.token, True)
            )
            missing = [x for x in batch if x.token not in written]
            if missing:
                await self._look_up(c, missing, settled)

    async def _send(
        self, c: StepConnection, batch: Sequence[Ended], settled: Settled
    ) -> dict[UUID, bool]:
        """Write the batch in one transaction, and re-arm what waited for it in another one.

        Both are one round trip. They are two transactions, because schedules come before executions
        in the lock order, and because a claim that parks a schedule must see the outcome. If the
        second one fails, the outcomes are written nevertheless.

        Return the written tokens, and for each whether its scope has input to settle.
        """
        finishing = [x.row for x in batch if not x.release]
        releasing = [x for x in batch if x.release]
        to_rearm = [*self._to_rearm, *_scopes(batch)]
        # Also those whose lease is lost, because they end as well. A notification is only a hint.
        self._to_notify.update(self._awaited.among(x.lease.claimed.id for x in batch))
        writing, finished, released = None, None, []
        try:
            async with c.round_trip():
                async with step_transaction(c) as writing:
                    if finishing:
                        finished = await self._statements.finish_executions(c, finishing)
                    for x in releasing:
                        released.append(
                            await self._statements.release_executions(
                                c, [x.lease.claimed.key], [x.token],
                                x.outcome.error_code or "", x.outcome.error_msg or "",
                            )
                        )  # fmt: skip
                settled.may_start |= await self._rearm(c, to_rearm)
        except psycopg.Error:
            if writing is None or not writing.committed:
                raise
            self._to_rearm = to_rearm  # the next step repeats it, and reports an error that lasts
        written: dict[UUID, bool] = {}
        if finished is not None:
            written.update((row.token, row.has_input) for row in await finished.fetchall())
        for cursor in released:
            written.update((token, False) for token in await cursor.fetchall())
        return written

    async def _look_up(self, c: StepConnection, missing: Sequence[Ended], settled: Settled) -> None:
        """Settle the outcomes whose write did not return their row.

        Either an earlier write has committed them and its reply was lost, or their lease is lost. A
        row that is RUNNING under its token was locked, and its write is repeated.
        """
        result = await self._statements.read_leases(
            c, [x.lease.claimed.key for x in missing], [x.token for x in missing]
        )
        states = {state.token: state for state in await result.fetchall()}
        for ended in missing:
            state = states.get(ended.token)
            if state is not None and state.ours and state.status == Status.RUNNING:
                continue
            if ended.is_committed(state):
                settled.committed.append(ended)
                continue
            settled.dropped.append(ended)
            if self._leases.lose(ended.token) is not None:
                log.warning(
                    "lease_lost", **ended.lease.log_fields, refused=ended.outcome.status.value
                )

    async def _rearm(self, c: StepConnection, ended: Sequence[tuple[ScopeKey, str]]) -> bool:
        """Re-arm the schedules that waited for these executions. Return whether others may start.

        It also notifies the programs that wait for an execution.

        Schedules that others have locked stay to be re-armed: a claim, for example, locks the
        schedules of executions that it then does not start. The sweeper re-arms whatever a crash
        leaves behind.
        """
        async with step_transaction(c):
            result = await self._statements.rearm_unblocked(c, ended)
            waiting = await self._statements.has_waiting(c)
            if self._to_notify:
                await self._statements.notify_ended(c, sorted(self._to_notify))
        unblocked = await result.fetchall()
        self._to_notify.clear()
        self._to_rearm = [(x.scope, x.queue) for x in unblocked if not x.rearmed]
        return any(x.rearmed for x in unblocked) or bool(await waiting.fetchone())

    async def _follow_up(self, *, rearm: bool) -> bool:
        """Settle the input of executions that ended, and with `rearm` re-arm what was locked.

        In transactions of their own. Return whether others may start now.
        """
        may_start = False
        try:
            if rearm and self._to_rearm:
                async with self._pool.connection() as c:
                    may_start = await self._rearm(c, self._to_rearm)
            if self._to_settle:
                scopes = sorted(self._to_settle)
                async with self._pool.connection() as c, step_transaction(c):
                    await self._statements.settle_inputs(c, scopes)
                self._to_settle.difference_update(scopes)
                may_start = True
        except RETRYABLE_ERRORS:
            pass
        except psycopg.Error as error:
            if not is_unreachable(error):
                raise
        return may_start


def _scopes(batch: Sequence[Ended]) -> list[tuple[ScopeKey, str]]:
    return [(x.lease.claimed.key.scope, x.lease.queue) for x in batch]

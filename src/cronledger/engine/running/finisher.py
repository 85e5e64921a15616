"""The finisher: writes the outcomes of attempts, many in one guarded statement.

An outcome stays here, and its lease is extended, until the database has taken it or the row shows
the token of another holder.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import psycopg

from cronledger.engine.lease import Lease, Leases
from cronledger.engine.log_throttle import reason
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.database_errors import BAD_VALUE_ERRORS, RETRYABLE_ERRORS, is_unreachable
from cronledger.ledger.rows import Ending
from cronledger.ledger.statements import Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.logger import get_logger
from cronledger.rules.model import ScopeKey, Status
from cronledger.rules.outcome import ErrorCode, Outcome, clean_text

log = get_logger(__name__)

LARGEST_BATCH = 500
UNSTORABLE = (*BAD_VALUE_ERRORS, UnicodeError)
"""Errors that one value can cause. A lone surrogate fails before it reaches the database."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of an attempt that has to be written.

    `give_back`: the execution returns to PENDING instead, for the reason in `outcome`.
    """

    lease: Lease
    outcome: Outcome
    duration_ms: int
    give_back: bool = False

    @property
    def ending(self) -> Ending:
        o, claimed = self.outcome, self.lease.claimed
        return Ending(
            claimed.key, claimed.token, o.status.value, o.result_json, o.rows_affected, o.output,
            o.error_code, o.error_msg, self.duration_ms, o.retry_after, o.watermark, o.covers,
        )  # fmt: skip


class Finisher:
    """Takes outcomes with `put` and writes them with `step`.

    `written` is called with the outcomes that are committed. `gather`: the seconds for which a step
    waits for further outcomes.
    """

    def __init__(
        self,
        pool: AsyncPool,
        statements: Statements,
        leases: Leases,
        written: Callable[[Sequence[Ended]], None],
        *,
        gather: float = 0.002,
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._leases = leases
        self._written = written
        self._gather = gather
        self._waiting: list[Ended] = []
        self._to_rearm: list[tuple[ScopeKey, str]] = []
        self._to_settle: set[ScopeKey] = set()
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

    async def drained(self) -> None:
        """Wait until every outcome is written."""
        await self._empty.wait()

    async def step(self) -> float | None:
        """Write a batch. Return the seconds until the next step, or None to wait for `wake`."""
        if not self._waiting:
            await self._rearm()
            return None
        if len(self._waiting) < LARGEST_BATCH and self._gather:
            await asyncio.sleep(self._gather)
        batch = self._waiting[:LARGEST_BATCH]
        done = await self._write(batch)
        tokens = {ended.lease.token for ended in done}
        self._waiting[: len(batch)] = [x for x in batch if x.lease.token not in tokens]
        for ended in done:
            self._leases.remove(ended.lease.token)
        self._to_rearm.extend((x.lease.claimed.key.scope, x.lease.queue) for x in done)
        await self._rearm()
        if not self._waiting:
            self._empty.set()
        self._written(done)
        return 0 if self._waiting else None

    async def _write(self, batch: Sequence[Ended]) -> list[Ended]:
        """Write all outcomes, even if one of them holds a value that cannot be stored.

        Return those that need no further write.
        """
        try:
            return await self._write_once(batch)
        except UNSTORABLE as error:
            if len(batch) > 1:
                middle = len(batch) // 2
                return [*await self._write(batch[:middle]), *await self._write(batch[middle:])]
            return await self._write_without_values(batch[0], error)

    async def _write_without_values(self, ended: Ended, error: Exception) -> list[Ended]:
        # The handler has done its work, which must not run again because of its result.
        text = clean_text(f"the outcome could not be stored: {reason(error)}", 4000)
        plain = replace(
            ended.outcome, result_json=None, output=None, rows_affected=None,
            error_code=ended.outcome.error_code or ErrorCode.RESULT_INVALID, error_msg=text,
        )  # fmt: skip
        if ended.outcome.status is not Status.SUCCESS:
            plain = replace(plain, error_code=ErrorCode.RESULT_INVALID)
        log.warning("outcome_refused", execution_id=ended.lease.claimed.id, error=text)
        try:
            return await self._write_once([replace(ended, outcome=plain)])
        except UNSTORABLE:
            log.exception("outcome_dropped", execution_id=ended.lease.claimed.id)
            return [ended]

    async def _write_once(self, batch: Sequence[Ended]) -> list[Ended]:
        async with self._pool.connection() as c:
            has_input = await self._send(c, batch)
            missing = [x for x in batch if x.lease.token not in has_input]
            # The writer of a missing row may have left input to settle as well.
            self._to_settle.update(
                x.lease.claimed.key.scope for x in batch if has_input.get(x.lease.token, True)
            )
            unwritten = await self._find_unwritten(c, missing) if missing else set()
        return [x for x in batch if x.lease.token not in unwritten]

    async def _send(self, c: psycopg.AsyncConnection, batch: Sequence[Ended]) -> dict[UUID, bool]:
        """Write the batch in one transaction.

        Return the tokens that were written, each with whether its scope has input to settle.
        """
        finishing = [x.ending for x in batch if not x.give_back]
        returning = [x for x in batch if x.give_back]
        finished, released = None, []
        async with step_transaction(c):
            if finishing:
                finished = await self._statements.finish_executions(c, finishing)
            for x in returning:
                released.append(
                    await self._statements.release_executions(
                        c, [x.lease.claimed.key], [x.lease.token],
                        x.outcome.error_code or "", x.outcome.error_msg or "",
                    )
                )  # fmt: skip
        written: dict[UUID, bool] = {}
        if finished is not None:
            written.update((row.token, row.has_input) for row in await finished.fetchall())
        for cursor in released:
            written.update((token, False) for token in await cursor.fetchall())
        return written

    async def _find_unwritten(
        self, c: psycopg.AsyncConnection, missing: Sequence[Ended]
    ) -> set[UUID]:
        """Return the tokens of those whose write did not return their row and has to be repeated.

        The others were written before, or their lease is lost. A row that was swept keeps its
        token, but its end differs from the outcome that had to be written.
        """
        answer = await self._statements.read_leases(
            c, [x.lease.claimed.key for x in missing], [x.lease.token for x in missing]
        )
        ours = {x.token: (x.status, x.error_code) for x in await answer.fetchall() if x.ours}
        unwritten = set()
        for ended in missing:
            lease, outcome = ended.lease, ended.outcome
            status, error_code = ours.get(lease.token, (None, None))
            if status == "RUNNING":
                unwritten.add(lease.token)
                continue
            written = status in _written_as(outcome) and error_code == outcome.error_code
            if not written and self._leases.lose(lease.token) is not None:
                log.warning("lease_lost", **lease.log_fields, refused=outcome.status.value)
        return unwritten

    async def _rearm(self) -> None:
        """Re-arm the schedules that waited for these executions, and settle their input.

        In transactions of their own after the outcome, because schedules come before executions in
        the lock order. The sweeper re-arms whatever a crash leaves behind.
        """
        try:
            if self._to_rearm:
                async with self._pool.connection() as c, step_transaction(c):
                    await self._statements.rearm_unblocked(c, self._to_rearm)
                self._to_rearm.clear()
            if self._to_settle:
                scopes = sorted(self._to_settle)
                async with self._pool.connection() as c, step_transaction(c):
                    await self._statements.settle_inputs(c, scopes)
                self._to_settle.difference_update(scopes)
        except RETRYABLE_ERRORS:
            return
        except psycopg.Error as error:
            if not is_unreachable(error):
                raise


def _written_as(outcome: Outcome) -> set[str]:
    """Return the statuses that the ledger may have written for this outcome."""
    # After a requested cancel, of which the runner need not know yet, FAILED becomes CANCELLED.
    cancelled = {Status.CANCELLED.value} if outcome.status is Status.FAILED else set()
    return {outcome.status.value} | cancelled

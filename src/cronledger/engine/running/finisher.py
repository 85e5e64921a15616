"""Writes how attempts ended: gathered for a few milliseconds, written in one guarded statement.

An ending stays here, and its lease is renewed, until the database has taken it or another holder's
token is seen on the row.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import psycopg

from cronledger.engine.lease import Lease, Leases
from cronledger.engine.log_throttle import reason
from cronledger.ledger.database import (
    BAD_VALUE_ERRORS,
    RETRYABLE_ERRORS,
    AsyncPool,
    is_unreachable,
    step_transaction,
)
from cronledger.ledger.rows import Ending
from cronledger.ledger.statements import Statements
from cronledger.logger import get_logger
from cronledger.rules.model import ScopeKey, Status
from cronledger.rules.outcome import ErrorCode, Outcome, clean_text

log = get_logger(__name__)

LARGEST_BATCH = 500
UNSTORABLE = (*BAD_VALUE_ERRORS, UnicodeError)
"""What one value can cause; a lone surrogate does not even reach the database."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A handler's end that is to be written; `give_back`: to PENDING instead, as `outcome` says
    why.
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
    """Takes ends with `put`, writes them with `step`."""

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
        return len(self._waiting)

    async def drained(self) -> None:
        """Everything that was put is written."""
        await self._empty.wait()

    async def step(self) -> float | None:
        """Write what has gathered; answers seconds until the next look, None: when woken."""
        if not self._waiting:
            await self._rearm()
            return None
        if len(self._waiting) < LARGEST_BATCH and self._gather:
            await asyncio.sleep(self._gather)
        batch = self._waiting[:LARGEST_BATCH]
        settled = await self._write(batch)
        done = {ended.lease.token for ended in settled}
        self._waiting[: len(batch)] = [x for x in batch if x.lease.token not in done]
        for ended in settled:
            self._leases.remove(ended.lease.token)
        self._to_rearm.extend((x.lease.claimed.key.scope, x.lease.queue) for x in settled)
        await self._rearm()
        if not self._waiting:
            self._empty.set()
        self._written(settled)
        return 0 if self._waiting else None

    async def _write(self, batch: Sequence[Ended]) -> list[Ended]:
        """Write all of them, whatever one of them holds; answers those that need no more
        writing.
        """
        try:
            return await self._write_once(batch)
        except UNSTORABLE as error:
            if len(batch) > 1:
                middle = len(batch) // 2
                return [*await self._write(batch[:middle]), *await self._write(batch[middle:])]
            return await self._write_plain(batch[0], error)

    async def _write_plain(self, ended: Ended, error: Exception) -> list[Ended]:
        # What the handler left cannot be stored, and the work is done: it must not run again.
        text = clean_text(f"the outcome could not be stored: {reason(error)}", 4000)
        plain = replace(
            ended.outcome, result_json=None, output=None, rows_affected=None,
            error_code=ended.outcome.error_code or ErrorCode.RESULT_INVALID, error_msg=text,
        )  # fmt: skip
        if ended.outcome.status is not Status.SUCCESS:
            plain = replace(plain, error_code=ErrorCode.RESULT_INVALID)
        log.warning("outcome_not_storable", execution_id=ended.lease.claimed.id, error=text)
        try:
            return await self._write_once([replace(ended, outcome=plain)])
        except UNSTORABLE:
            log.exception("outcome_dropped", execution_id=ended.lease.claimed.id)
            return [ended]

    async def _write_once(self, batch: Sequence[Ended]) -> list[Ended]:
        finishing = [x for x in batch if not x.give_back]
        returning = [x for x in batch if x.give_back]
        answers = []
        async with self._pool.connection() as c:
            async with step_transaction(c):
                if finishing:
                    answers.append(
                        await self._statements.finish_executions(c, [x.ending for x in finishing])
                    )
                for ended in returning:
                    answers.append(
                        await self._statements.give_back(
                            c, [ended.lease.claimed.key], [ended.lease.token],
                            ended.outcome.error_code or "", ended.outcome.error_msg or "",
                        )
                    )  # fmt: skip
            rows = [row for answer in answers for row in await answer.fetchall()]
            written = {row[0] for row in rows}
            # What was written by somebody else may have input, too.
            plain = {row[0] for row in rows if not any(row[1:])}
            self._to_settle.update(
                x.lease.claimed.key.scope for x in batch if x.lease.token not in plain
            )
            silent = [x for x in batch if x.lease.token not in written]
            unsettled = await self._read_silent(c, silent) if silent else set()
        return [x for x in batch if x.lease.token not in unsettled]

    async def _read_silent(self, c: psycopg.AsyncConnection, silent: list[Ended]) -> set[UUID]:
        """What was not written is written already, or lost; answers what has to be tried again.

        A swept row keeps our token, but its end is not the one we would have written.
        """
        answer = await self._statements.read_leases(
            c, [x.lease.claimed.key for x in silent], [x.lease.token for x in silent]
        )
        ours = {x.token: (x.status, x.error_code) for x in await answer.fetchall() if x.ours}
        again = set()
        for ended in silent:
            status, error_code = ours.get(ended.lease.token, (None, None))
            if status == "RUNNING":
                again.add(ended.lease.token)
            elif (status, error_code) != (
                ended.outcome.status,
                ended.outcome.error_code,
            ) and self._leases.lose(ended.lease.token) is not None:
                log.warning(
                    "lease_lost",
                    job=ended.lease.claimed.key.job_name,
                    execution_id=ended.lease.claimed.id,
                    refused=ended.outcome.status.value,
                )
        return again

    async def _rearm(self) -> None:
        """Schedules that waited for what ended go back into the due index; what it covered is
        recorded.

        After the finish and in transactions of their own: executions come after schedules in the
        lock order. What a crash leaves behind, the sweeper does.
        """
        try:
            if self._to_rearm:
                ended = self._to_rearm
                async with self._pool.connection() as c, step_transaction(c):
                    await self._statements.rearm_unblocked(c, ended)
                self._to_rearm = self._to_rearm[len(ended) :]
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

"""Keeps the roll-up of hours, whose protocol is in migrations/functions/hours/roll_up_hours.sql.

The roll-up knows which hours hold data that `keep_output` of a job no longer permits, so a round
also redacts these (functions/retention/redact_outputs.sql).

Every replica begins a round with its hourly maintenance. One of them at a time does the work, and
the others find nothing left. Each transaction is bounded, and may be repeated.
"""

from collections.abc import AsyncIterator

from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.statements import Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.logs.loggers import get_logger

log = get_logger(__name__)

CHANGES = 20_000
"""Changed executions that one transaction marks."""
HOURS = 200
"""Hours of a (job, scope) that one transaction counts."""
PRUNED = 10_000
"""Hours that one transaction deletes."""
REDACTED = 5_000
"""Executions that one transaction redacts."""
TRANSACTIONS = 20
"""Transactions of one step, so that the other work of the sweeper does not wait."""


class HourRollUp:
    """A round marks what has changed, counts what is marked, prunes and redacts, in steps."""

    def __init__(self, pool: AsyncPool, statements: Statements) -> None:
        self._pool = pool
        self._statements = statements
        self._round: AsyncIterator[None] | None = None

    @property
    def unfinished(self) -> bool:
        """Return whether a round has more to do."""
        return self._round is not None

    def begin(self) -> None:
        """Begin a round with the next step, unless one is unfinished."""
        if self._round is None:
            self._round = self._transactions()

    async def step(self) -> None:
        """Do the next transactions of the round. Raises psycopg.Error, which ends the round."""
        for _ in range(TRANSACTIONS):
            if self._round is None:
                return
            try:
                await anext(self._round)
            except BaseException as error:
                self._round = None
                if not isinstance(error, StopAsyncIteration):
                    raise

    async def _transactions(self) -> AsyncIterator[None]:
        """Yield after each transaction of a round."""
        after: str | None = "0"
        while after is not None:
            after = await self._mark(after)
            yield
        while await self._roll_up():
            yield
        while await self._prune() == PRUNED:
            yield
        while await self._redact():
            yield

    async def _mark(self, after: str) -> str | None:
        async with self._pool.connection() as c, step_transaction(c):
            found = await self._statements.mark_changed_hours(c, after, CHANGES)
        return await found.fetchone()

    async def _roll_up(self) -> int | None:
        async with self._pool.connection() as c, step_transaction(c):
            found = await self._statements.roll_up_hours(c, HOURS)
        return await found.fetchone()

    async def _prune(self) -> int | None:
        async with self._pool.connection() as c, step_transaction(c):
            found = await self._statements.prune_hours(c, PRUNED)
        return await found.fetchone()

    async def _redact(self) -> bool:
        """Redact one batch of executions. Return whether more may be left."""
        async with self._pool.connection() as c:
            async with step_transaction(c):
                done = await self._statements.redact_outputs(c, REDACTED)
            row = await done.fetchone()
        assert row is not None
        if row.redacted:
            log.info("outputs_redacted", count=row.redacted)
        return row.unfinished

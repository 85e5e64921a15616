"""Claims whose COMMIT has an unknown outcome: what was committed is released, never started."""

from collections.abc import Iterable
from uuid import UUID

from cronledger.ledger.claim_rows import Claimed
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.rows import NewClaim
from cronledger.ledger.statements import Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.logs.loggers import get_logger
from cronledger.rules.model import ExecutionKey

log = get_logger(__name__)


class UnknownCommits:
    """The executions of a claim that may or may not have been committed, by token.

    A claim adds its executions before their COMMIT. They are removed when the claim returns them,
    or when the transaction is known to be rolled back. Those of a claim that was cut off in between
    stay here until `resolve` has looked them up.
    """

    def __init__(self, pool: AsyncPool, statements: Statements) -> None:
        self._pool = pool
        self._statements = statements
        self._executions: dict[UUID, tuple[ExecutionKey, str]] = {}  # key and queue

    def add(self, executions: Iterable[Claimed | NewClaim]) -> None:
        """Record that the outcome of these executions is unknown."""
        self._executions.update((x.token, (x.key, x.queue)) for x in executions)

    def remove(self, executions: Iterable[Claimed | NewClaim]) -> None:
        """Remove executions that the caller of the claim holds, or that were rolled back."""
        for execution in executions:
            self._executions.pop(execution.token, None)

    async def resolve(self) -> None:
        """Release every execution that was committed. Afterwards no outcome is unknown.

        The claim may have parked schedules behind these executions, and a release may have ended
        one of them as CANCELLED, so these schedules are re-armed.

        Raises psycopg.Error if the database is unreachable.
        """
        released, unknown = 0, len(self._executions)
        claimed = [(key.scope, queue) for key, queue in self._executions.values()]
        while self._executions:
            released += await self._release()
        if unknown:
            log.warning("claim_commit_unknown", executions=unknown, released=released)
            # Also if nothing was released: a release whose reply was lost is not counted again.
            async with self._pool.connection() as c, step_transaction(c):
                await self._statements.rearm_unblocked(c, claimed)

    async def _release(self) -> int:
        """Release the committed executions, guarded by their tokens. Return their number.

        The backend of the lost claim may still be working, and may COMMIT after the look-up. So
        this first waits for the lock of one schedule: one transaction claimed all of these
        executions, and it holds the locks of all their schedules.

        An execution that is still RUNNING under its token afterwards stays unknown. PostgreSQL 18
        up to 18.4 skips rows that were updated (by a request to cancel them, for example) while
        `release_executions` waited for them. The next call sees their current state.
        """
        tokens, keys = list(self._executions), [key for key, _ in self._executions.values()]
        async with self._pool.connection() as c:
            async with step_transaction(c):
                await self._statements.lock_schedule(c, min(key.scope for key in keys))
                released = await self._statements.release_executions(
                    c, keys, tokens, "not_started",
                    "the reply to the claim's COMMIT was lost; the handler was never started",
                )  # fmt: skip
                states = await self._statements.read_leases(c, keys, tokens)
            count = len(await released.fetchall())
            running = {x.token for x in await states.fetchall() if x.ours and x.status == "RUNNING"}
        for token in tokens:
            if token not in running:
                self._executions.pop(token, None)
        return count

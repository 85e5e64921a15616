"""Raises alerts: the step whose protocol is in migrations/functions/alerts/raise_alerts.sql.

Every replica calls it, and one of them at a time does the work. It is a loop of its own, so that a
long round of maintenance delays no alert.
"""

import asyncio
from time import monotonic

from cronledger.engine.event import Event
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.statements import Statements
from cronledger.ledger.transactions import step_transaction

MOST_CHANGES = 1_000
"""Changed executions that one transaction observes."""
SEARCH_SECONDS = 10.0
"""The time between two steps while a job has rules for alerts."""
SHORTEST_REST = 1.0
"""The time between two steps at least, however many executions fail."""
IDLE_SECONDS = 180.0
"""The time after which the loop begins a step that does nothing, while no job has rules."""
PRUNE_SECONDS = 3600.0
MOST_PRUNED = 10_000


class Alerts:
    """Raises alerts while a job has rules for them, and prunes those that are not kept.

    Event: `raised`, a delivery is due.
    """

    def __init__(self, pool: AsyncPool, statements: Statements) -> None:
        self._pool = pool
        self._statements = statements
        self.wake = asyncio.Event()
        self.raised = Event[[]]()
        self._watching = False
        self._next_at = 0.0
        self._prune_at = 0.0

    @property
    def watching(self) -> bool:
        """Return whether a job has rules, as of the last check-in."""
        return self._watching

    def note(self, *, watching: bool) -> None:
        """Note whether a job has rules, as a check-in has found."""
        begins = watching and not self._watching
        self._watching = watching
        if begins:
            self.wake.set()

    def failed(self) -> None:
        """Note that an execution has failed. Sends nothing."""
        if self._watching:
            self.wake.set()

    async def step(self) -> float:
        """Observe what has changed, and return the seconds until the next step.

        Raises psycopg.Error.
        """
        if not self._watching:
            return IDLE_SECONDS
        early = self._next_at - monotonic()
        if early > 0:
            return early
        more = await self._raise()
        if monotonic() >= self._prune_at:
            await self._prune()
            self._prune_at = monotonic() + PRUNE_SECONDS
        if more:
            return 0.0
        self._next_at = monotonic() + SHORTEST_REST
        return SEARCH_SECONDS

    async def raise_all(self) -> None:
        """Observe all changes. Raises psycopg.Error."""
        while await self._raise():
            pass

    async def _raise(self) -> bool:
        """Observe the changes of one transaction, and return whether more are left."""
        async with self._pool.connection() as c, step_transaction(c):
            await self._statements.require_own_database(c)
            result = await self._statements.raise_alerts(c, MOST_CHANGES)
            raised = await result.fetchone()
        assert raised is not None
        if raised.deliver:
            self.raised()
        return bool(raised.more)

    async def _prune(self) -> None:
        pruned: int | None = MOST_PRUNED
        while pruned == MOST_PRUNED:
            async with self._pool.connection() as c, step_transaction(c):
                result = await self._statements.prune_alerts(c, MOST_PRUNED)
            pruned = await result.fetchone()

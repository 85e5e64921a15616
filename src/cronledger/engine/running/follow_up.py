"""What the end of executions makes possible: schedules and input that waited for them go on."""

from collections.abc import Iterable, Sequence

import psycopg

from cronledger.engine.awaited import Awaited
from cronledger.engine.event import Event
from cronledger.engine.running.ended import Ended
from cronledger.ledger.connections import AsyncPool, StepConnection
from cronledger.ledger.database_errors import RETRYABLE_ERRORS, is_unreachable
from cronledger.ledger.statements import Statements
from cronledger.ledger.transactions import step_transaction
from cronledger.rules.model import ScopeKey

LOCKED_SECONDS = 0.2
"""The wait before locked schedules are re-armed, or a failed follow-up is repeated."""


class FollowUp:
    """Re-arms schedules, settles input, and notifies programs, after executions ended.

    Each of it is a transaction of its own, because schedules come before executions in the lock
    order. Whatever a crash leaves behind is done by the sweeper.

    Events: `rearmed`, a schedule is due, perhaps in the past; `gates`, a gate is due to be checked.
    """

    def __init__(self, pool: AsyncPool, statements: Statements, awaited: Awaited) -> None:
        self._pool = pool
        self._statements = statements
        self._awaited = awaited
        # One element for each execution that ended, because each may free a place of its job.
        self._to_rearm: list[tuple[ScopeKey, str]] = []
        self._to_settle: set[ScopeKey] = set()
        self._to_notify: set[int] = set()
        self.rearmed = Event[[]]()
        self.gates = Event[[]]()

    @property
    def rest(self) -> float | None:
        """The seconds until `go_on` has something to do; None: nothing."""
        return LOCKED_SECONDS if self._to_rearm or self._to_settle else None

    def settle_later(self, scopes: Iterable[ScopeKey]) -> None:
        """Note that these scopes may have input to settle."""
        self._to_settle.update(scopes)

    def rearm_later(self, ended: Iterable[Ended]) -> None:
        """Note that the schedules of these executions have to be re-armed."""
        self._to_rearm.extend(x.schedule for x in ended)

    async def rearm(self, c: StepConnection, ended: Sequence[Ended]) -> bool:
        """Re-arm the schedules that waited for these and earlier executions.

        Programs that wait for one of the executions are notified. Returns whether others may start.
        Schedules that others have locked stay to be re-armed: a claim, for example, locks the
        schedules of executions that it then does not start. Raises psycopg.Error.
        """
        # Also those whose lease is lost, because they end as well. A notification is only a hint.
        self._to_notify.update(self._awaited.among(x.lease.claimed.id for x in ended))
        schedules = [*self._to_rearm, *(x.schedule for x in ended)]
        async with step_transaction(c):
            result = await self._statements.rearm_unblocked(c, schedules)
            waiting = await self._statements.has_waiting(c)
            if self._to_notify:
                await self._statements.notify_ended(c, sorted(self._to_notify))
        unblocked = await result.fetchall()
        self._to_notify.clear()
        self._to_rearm = [(x.scope, x.queue) for x in unblocked if not x.rearmed]
        if rearmed := any(x.rearmed for x in unblocked):
            self.rearmed()
        found = await waiting.fetchone()
        assert found is not None, "the statement returns one row"
        if found.gates:
            self.gates()
        return found.executions or rearmed

    async def go_on(self, *, rearm: bool) -> bool:
        """Settle the input of executions that ended, and with `rearm` re-arm what was locked.

        Returns whether others may start now. What fails because of another transaction, or because
        the database is unreachable, is left for the next call. Raises any other psycopg.Error.
        """
        may_start = False
        try:
            if rearm and self._to_rearm:
                async with self._pool.connection() as c:
                    may_start = await self.rearm(c, ())
            if self._to_settle:
                scopes = sorted(self._to_settle)
                async with self._pool.connection() as c, step_transaction(c):
                    await self._statements.settle_inputs(c, scopes)
                self._to_settle.difference_update(scopes)
                may_start = True
        except psycopg.Error as error:
            if not isinstance(error, RETRYABLE_ERRORS) and not is_unreachable(error):
                raise
        return may_start

"""The transaction in which a handler's own writes commit together with the SUCCESS.

It begins with `assert_lease`. The FOR KEY SHARE lock of that function makes steals and the sweeper
skip the row until the transaction ends. Heartbeats are not blocked. The transaction ends with the
guarded statement that ends every execution, and COMMIT. If anything fails before that, nothing was
written.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, cast

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.rows import tuple_row

from cronledger.declaring.app import Cancelled, CancelToken, Context
from cronledger.engine.lease import Lease
from cronledger.engine.running.ended import Ended
from cronledger.engine.running.handlers.guard import LeaseEndedError
from cronledger.engine.threads import Threads
from cronledger.ledger.access import Access
from cronledger.ledger.database_errors import is_unreachable
from cronledger.ledger.queries import run, run_async
from cronledger.ledger.schemas import internal
from cronledger.ledger.session_settings import SET_VALUES
from cronledger.ledger.statements import Statements
from cronledger.logs.loggers import get_logger
from cronledger.rules import outcome
from cronledger.rules.outcome import Discard, LeaseLost, Outcome

log = get_logger(__name__)

Work = AsyncConnection[tuple[Any, ...]]
LEASE_IS_LOST = "CL001"
CONNECTIONS = 10
"""The maximum number of connections for handlers. Further handlers wait, within run_timeout."""
POLL = 0.05
RETRY = 0.25
MARK = "cronledger.execution_id"
LONGEST_IDLE_MS = 2**31 - 1
# Function names are qualified, because the role or the handler may have set the search_path.
_IDLE = """
    pg_catalog.set_config('idle_in_transaction_session_timeout', coalesce(least(%s::bigint,
        nullif((1000 * extract(epoch FROM pg_catalog.current_setting(
            'idle_in_transaction_session_timeout')::interval))::bigint, 0)), 0)::text, true)
"""
_CLOSING = f"""
    SELECT pg_catalog.current_setting('{MARK}', true) = %s, {SET_VALUES},
           pg_catalog.set_config('jit', 'off', true),
           pg_catalog.set_config('statement_timeout', '60000', true),
           pg_catalog.set_config('lock_timeout', %s, true)
"""


class Connections:
    """Opens the transactions of a runner's handlers. Has to be created in the main loop."""

    def __init__(
        self, access: Access, statements: Statements, threads: Threads, limit: int = CONNECTIONS
    ) -> None:
        self.access = access
        self.statements = statements
        self.threads = threads
        self.loop = asyncio.get_running_loop()
        self.room = asyncio.Semaphore(limit)

    def settings(self, context: Context) -> dict[str, str]:
        """Return the settings that SQL can read with `current_setting('cronledger.…', true)`."""
        payload = None if context.payload is None else json.dumps(context.payload)
        results = context._upstreams
        return {
            MARK: str(context.execution_id),
            "cronledger.job": context.job,
            "cronledger.scope_kind": context.scope_kind,
            "cronledger.scope_id": context.scope_id,
            "cronledger.plan_time": context.plan_time.isoformat(),
            "cronledger.trigger": context.trigger.value,
            "cronledger.attempt": str(context.attempt),
            "cronledger.payload": payload or "",
            "cronledger.upstream": results.as_json() if results.by_job else "",
            "cronledger.window_start": context.window.start.isoformat() if context.window else "",
            "cronledger.window_end": context.window.end.isoformat() if context.window else "",
        }

    def opening(
        self, context: Context, run_timeout: timedelta | None
    ) -> tuple[sql.Composed, list[Any]]:
        """Return the first statement. It fences the lease and makes the settings local.

        The server ends a transaction that is idle for `run_timeout`. A stricter limit of the
        database takes precedence, and is the only limit of a job without a `run_timeout`.
        """
        names = self.settings(context)
        idle = None
        if run_timeout is not None:
            idle = min(LONGEST_IDLE_MS, round(run_timeout.total_seconds() * 1000))
        configs = sql.SQL(", ").join([sql.SQL("pg_catalog.set_config(%s, %s, true)")] * len(names))
        schema = sql.Identifier(self.statements.schema)
        query = sql.SQL("SELECT {}.require_ledger(%s), {}.assert_lease(%s, %s), {}, {}").format(
            sql.Identifier(internal(self.statements.schema)), schema, sql.SQL(_IDLE), configs
        )
        pairs = [value for pair in names.items() for value in pair]
        expected = self.access.expected
        ledger = None if expected is None else expected.id
        return query, [ledger, context.execution_id, context.lease_token, idle, *pairs]


class ExecutionTransaction:
    """The transaction that `ctx.transaction()` of one execution returns.

    The handler enters and leaves it. The runner calls `commit` after the handler has returned, and
    always `close`. `pending`: the handler left the block normally, and its writes wait for its
    return.
    """

    def __init__(
        self,
        connections: Connections,
        lease: Lease,
        cancel: CancelToken,
        duration_ms: Callable[[], int],
    ) -> None:
        self._connections = connections
        self._lease = lease
        self._cancel = cancel
        self._duration_ms = duration_ms
        self._opening: tuple[sql.Composed, list[Any]] | None = None
        self._connection: Work | psycopg.Connection[tuple[Any, ...]] | None = None
        self._transaction: Any = None
        self._busy = False
        self._has_room = False
        self.pending = False

    def open(self, context: Context) -> "ExecutionTransaction":
        """Return this transaction for the handler to enter. Raises RuntimeError if it is open."""
        self._refuse_second()
        # The context refers to this transaction. If this one kept the context, only a search for
        # cycles would free the objects of the execution.
        self._opening = self._connections.opening(context, self._lease.job.run_timeout)
        return self

    def _refuse_second(self) -> None:
        if self._busy:
            raise RuntimeError(
                "a transaction of this execution is already open; pass its connection on"
            )

    async def roll_back(self) -> None:
        """Roll back what a handler wrote that left the block normally and raised afterwards."""
        if self.pending:
            await self.close()

    def roll_back_sync(self) -> None:
        """Do the same in the thread of a sync handler."""
        if self.pending:
            self._drop()

    @property
    def inside(self) -> bool:
        """Return whether the block was entered and not left."""
        return self._busy and not self.pending

    # -- the handler's side ---------------------------------------------------------------------

    async def __aenter__(self) -> Work:
        if asyncio.get_running_loop() is not self._connections.loop:
            raise RuntimeError("in a sync handler, write `with ctx.transaction() as conn:`")
        self._refuse_second()
        self._busy = True
        try:
            await self._connections.room.acquire()
            self._has_room = True
            made = await self._connections.access.connect_async(
                "cronledger transaction", role_settings=True
            )
            self._connection = made
            self._transaction = made.transaction()
            await self._transaction.__aenter__()
            await made.execute(*self._first_statement)
        except BaseException as error:
            await self.close()
            _raise_if_lost(error)
            raise
        return made

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is None:
            self.pending = True
        else:
            await self.close()

    def __enter__(self) -> psycopg.Connection[tuple[Any, ...]]:
        if _in_loop():
            raise RuntimeError("in an async handler, write `async with ctx.transaction() as conn:`")
        self._refuse_second()
        self._busy = True
        try:
            self._wait_for_room()
            made = self._connections.access.connect("cronledger transaction", role_settings=True)
            self._connection = made
            self._transaction = made.transaction()
            self._transaction.__enter__()
            made.execute(*self._first_statement)
        except BaseException as error:
            self._drop()
            _raise_if_lost(error)
            raise
        return made

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is None:
            self.pending = True
        else:
            self._drop()

    @property
    def _first_statement(self) -> tuple[sql.Composed, list[Any]]:
        assert self._opening is not None, "the handler has this transaction from `open`"
        return self._opening

    def _wait_for_room(self) -> None:
        room = self._connections.room
        waiting = asyncio.run_coroutine_threadsafe(room.acquire(), self._connections.loop)
        while not waiting.done():
            if self._cancel.wait(POLL) and waiting.cancel():
                self._cancel.check()
        waiting.result()
        self._has_room = True

    # -- the runner's side ----------------------------------------------------------------------

    async def commit(self, ended: Outcome) -> Outcome:
        """Commit the handler's writes together with `ended`, a SUCCESS, and return the outcome.

        If that fails, nothing is committed and the outcome is a failure. A cancellation does not
        interrupt it, because only the database decides the outcome. Raises LeaseEndedError, with
        nothing committed, if the lease has ended.
        """
        task = asyncio.ensure_future(self._commit(ended))
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        return task.result()

    async def close(self) -> None:
        """Close the connection, which rolls back what was not committed. Idempotent."""
        self._drop()
        connection, self._connection = self._connection, None
        if isinstance(connection, AsyncConnection):
            with suppress(psycopg.Error, OSError):
                await connection.close()

    def _drop(self) -> None:
        # Closing is the rollback: a transaction does not survive its connection.
        if isinstance(self._connection, psycopg.Connection):
            with suppress(psycopg.Error, OSError):
                self._connection.close()
            self._connection = None
        self._transaction, self.pending, self._busy = None, False, False
        if self._has_room:
            self._has_room = False
            with suppress(RuntimeError):  # the loop is closed, so nothing waits
                self._connections.loop.call_soon_threadsafe(self._connections.room.release)

    async def _commit(self, ended: Outcome) -> Outcome:
        if not self._lease.usable:
            raise LeaseEndedError
        if self._cancel.cancelled:
            return outcome.failure(Cancelled("requested to stop before its commit"))
        ending = Ended(self._lease, ended, self._duration_ms())
        try:
            if isinstance(self._connection, AsyncConnection):
                await self._finish(self._connection, ending)
            else:
                _, error = await self._connections.threads.call(lambda: self._finish_sync(ending))
                if error is not None:
                    raise error
        except Exception as error:  # noqa: BLE001 - the writes are rolled back, whatever it was
            if not is_unreachable(error) or not await self._landed():
                return outcome.failure(error)
        return replace(ended, written=True)

    async def _finish(self, connection: Work, ended: Ended) -> None:
        cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
        await cursor.execute("RESET ROLE")
        await cursor.execute(_CLOSING, self._closing_values())
        _refuse_foreign(await cursor.fetchone())
        statements = self._connections.statements
        params = statements.finish_parameters([ended.row])
        await run_async(cursor, "finish_executions", statements.schema, params)
        self._refuse_lost(await cursor.fetchall())
        await self._transaction.__aexit__(None, None, None)

    def _finish_sync(self, ended: Ended) -> None:
        connection = cast("psycopg.Connection[Any]", self._connection)
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        cursor.execute("RESET ROLE")
        cursor.execute(_CLOSING, self._closing_values())
        _refuse_foreign(cursor.fetchone())
        statements = self._connections.statements
        params = statements.finish_parameters([ended.row])
        run(cursor, "finish_executions", statements.schema, params)
        self._refuse_lost(cursor.fetchall())
        self._transaction.__exit__(None, None, None)

    def _closing_values(self) -> list[str]:
        lock_timeout_ms = self._connections.access.lock_timeout // timedelta(milliseconds=1)
        return [str(self._lease.claimed.id), str(lock_timeout_ms)]

    def _refuse_lost(self, written: list[Any]) -> None:
        if not written:
            raise LeaseLost(f"the lease of execution {self._lease.claimed.id} is lost")

    async def _landed(self) -> bool:
        """Return whether the COMMIT whose reply was lost took effect.

        This waits until the old backend releases the row, because until then it may still commit.
        If the lease ends before the database responds, the guard of every later write decides.
        """
        schema = self._connections.statements.schema
        named = dict(
            zip(("job", "kind", "scope", "plan"), self._lease.claimed.key, strict=True),
            token=self._lease.token,
        )
        logged = False
        while self._lease.usable:
            try:
                async with await self._connections.access.connect_async("cronledger look") as c:
                    cursor = c.cursor(row_factory=tuple_row)
                    row = await (await run_async(cursor, "lock_ending", schema, named)).fetchone()
                return row is not None and row[0] == "SUCCESS"
            except psycopg.Error as error:
                if not logged:
                    logged = True
                    log.warning("finish_commit_unknown", error=str(error).partition("\n")[0])
                await asyncio.sleep(RETRY)
        return False


def _refuse_foreign(row: tuple[Any, ...] | None) -> None:
    # The mark is local to the transaction that `opening` began.
    if row is None or row[0] is not True:
        raise Discard(
            "transaction_ended",
            "the handler ended the transaction itself (COMMIT or ROLLBACK in its SQL), and writes "
            "that it committed remain; remove that statement, because the runner commits",
        )


def _raise_if_lost(error: BaseException) -> None:
    if isinstance(error, psycopg.Error) and error.sqlstate == LEASE_IS_LOST:
        raise LeaseLost(str(error).partition("\n")[0]) from error


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

"""Connections of replicas, and the pool of those on which steps run."""

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Generic, Self

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import Row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from cronledger.ledger.identity import ExpectedLedger
from cronledger.ledger.round_trips import Params, Query, RoundTrips, Statement
from cronledger.ledger.session_settings import HUNG_SECONDS

BEGIN, COMMIT = b"BEGIN ISOLATION LEVEL READ COMMITTED", b"COMMIT"
OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)


def shutdown_socket(connection: psycopg.Connection[Any] | AsyncConnection[Any]) -> None:
    """Make everything that waits on the connection fail now.

    A request to cancel would wait for the server.
    """
    if not connection.closed:
        with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as s:
            s.shutdown(socket.SHUT_RDWR)


def is_disconnected(connection: psycopg.Connection[Any] | AsyncConnection[Any]) -> bool:
    """Return whether this unused connection was ended from outside. Sends nothing."""
    poll = select.poll()
    try:
        poll.register(connection.fileno(), select.POLLIN)
    except (psycopg.Error, OSError):
        return True
    # No statement is running, so readable data is the end, or the last message before it.
    return bool(poll.poll(0))


class StepConnection(AsyncConnection[tuple[Any, ...]]):
    """A connection on which a step takes as few round trips as it has to wait for results.

    `expected`: the ledger in which its steps work; each transaction of a step checks it.
    `lock_timeout`: the longest wait for a lock in a step.
    """

    expected: ExpectedLedger | None = None
    lock_timeout = timedelta(seconds=5)

    def __init__(self, *arguments: Any, **parameters: Any) -> None:
        super().__init__(*arguments, **parameters)
        self.trips = RoundTrips(self)
        self.gathers = False

    @asynccontextmanager
    async def round_trip(self) -> AsyncIterator[None]:
        """Send the statements of the block together, when it ends or when rows are fetched.

        A block in another one belongs to it. An error ends the block: what follows the statement
        that failed is not executed, and the transaction that is open is rolled back.
        """
        if self.gathers:
            yield
            return
        self.gathers = True
        try:
            yield
            await self.trips.make()
        except BaseException:
            self.trips.drop()
            if self.info.transaction_status in OPEN:
                with suppress(psycopg.Error):  # the pool discards the connection
                    await self.rollback()
            raise
        finally:
            self.gathers = False

    @asynccontextmanager
    async def begin(self) -> AsyncIterator["Transaction"]:
        """Run a transaction. An error ends it, also one that comes with COMMIT.

        BEGIN travels with the first statements of the transaction, and COMMIT with the last ones.
        Within `round_trip`, the transactions of the block travel together.
        """
        async with self.round_trip():
            await self.execute(BEGIN, prepare=False)
            transaction = Transaction()
            yield transaction
            transaction.end = await self.execute(COMMIT, prepare=False)


class Transaction:
    """A transaction of a step. `end`: its COMMIT, once that is to be sent."""

    end: AsyncCursor[Any] | None = None

    @property
    def committed(self) -> bool:
        """Whether the server has confirmed the COMMIT."""
        result = None if self.end is None else self.end.pgresult
        return result is not None and result.command_status == COMMIT


class StepCursor(Generic[Row]):
    """The rows of one statement of a StepConnection: what steps use of psycopg's cursors.

    In a transaction of a step the statement is sent when rows are fetched, by this cursor or
    another one, or with the COMMIT. Otherwise it is sent at once.
    """

    _encoding = "utf-8"  # psycopg's row factories decode the names of columns

    def __init__(self, connection: StepConnection, *, row_factory: Any) -> None:
        self.connection = connection
        self._statement: Statement | None = None
        self._row_factory = row_factory
        self._loaded = 0

    @property
    def pgresult(self) -> PGresult | None:
        return None if self._statement is None else self._statement.result

    async def execute(
        self, query: Query, params: Params | None = None, *, prepare: bool | None = None
    ) -> Self:
        """Send the statement, or add it to the next round trip. Raises psycopg.Error."""
        trips, allowed = self.connection.trips, self.connection.prepare_threshold is not None
        self._statement = trips.add(query, params, prepare=allowed and prepare is not False)
        if not self.connection.gathers:
            await trips.make()
        return self

    async def fetchone(self) -> Row | None:
        """Return the next row, or None after the last one. Raises psycopg.Error."""
        rows = await self._fetch(1)
        return rows[0] if rows else None

    async def fetchall(self) -> list[Row]:
        """Return all further rows. Raises psycopg.Error."""
        return await self._fetch(None)

    async def _fetch(self, most: int | None) -> list[Row]:
        trips = self.connection.trips
        if self.pgresult is None:
            await trips.make()
        result = self.pgresult
        if result is None or result.status != ExecStatus.TUPLES_OK:
            raise psycopg.ProgrammingError("the statement has not returned rows")
        first, last = self._loaded, result.ntuples
        if most is not None:
            last = min(last, first + most)
        self._loaded = last
        return trips.load(result, first, last, self._row_factory(self)) if first < last else []


class AsyncPool(AsyncConnectionPool[StepConnection]):
    """Connections for steps.

    A connection that is in use for longer than HUNG_SECONDS is shut down, because no other timeout
    detects a server that hangs, or a middlebox that acknowledges packets and drops them. A
    connection that ended while it was idle is replaced before a step gets it.

    `moved` is called when a new connection leads to another server process than before: a restarted
    server, or another server. It cannot be detected behind a pooler.
    """

    def __init__(self, **parameters: Any) -> None:
        self.moved: Callable[[], None] = lambda: None
        self.server_started: datetime | None = None
        self._failure: psycopg.Error | None = None
        self._gave_up = asyncio.Event()
        super().__init__(
            connection_class=_reporting(self._note),
            reconnect_failed=lambda _: self._gave_up.set(),
            **parameters,
        )

    def _note(self, failure: psycopg.Error | None) -> None:
        self._failure = failure

    def note_server(self, started: datetime) -> None:
        """Record that a new connection leads to the server process that started then."""
        before, self.server_started = self.server_started, started
        if before not in (None, started):
            self.moved()

    async def wait(self, timeout: float = 30.0) -> None:  # noqa: ASYNC109 - as in the class above
        """Wait until all connections are open.

        Raise PoolTimeout after `timeout`, or when the pool has given up on one of them. Its cause
        is the error that refuses the connections.
        """
        opening = asyncio.ensure_future(super().wait(timeout))
        # It may fail after this method has ended, and then nobody else reads its error.
        opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        giving_up = asyncio.ensure_future(self._gave_up.wait())
        try:
            await asyncio.wait([opening, giving_up], return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                raise PoolTimeout("no connection")
            await opening
        except PoolTimeout as error:
            raise self._explained(error) from self._failure or error
        finally:
            opening.cancel()
            giving_up.cancel()

    async def getconn(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as in the class above
    ) -> StepConnection:
        """Return a connection that has not ended.

        Raises PoolTimeout; its cause is the error that refuses new connections.
        """
        until = monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            try:
                connection = await super().getconn(max(0.0, until - monotonic()))
            except PoolTimeout as error:
                raise self._explained(error) from self._failure or error
            if not is_disconnected(connection):
                return connection
            await connection.close()
            await self.putconn(connection)

    def _explained(self, error: PoolTimeout) -> PoolTimeout:
        return error if self._failure is None else PoolTimeout(str(self._failure))

    @asynccontextmanager
    async def connection(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as in the class above
    ) -> AsyncIterator[StepConnection]:
        async with super().connection(timeout) as connection:
            timer = asyncio.get_running_loop().call_later(HUNG_SECONDS, shutdown_socket, connection)
            try:
                yield connection
            finally:
                timer.cancel()


def _reporting(report: Callable[[psycopg.Error | None], None]) -> type[StepConnection]:
    """Return a class of connections that reports why one could not be opened.

    The pool only logs the error. `report` gets the error, or None after a success.
    """

    class Reporting(StepConnection):
        @classmethod
        async def connect(cls, *arguments: Any, **parameters: Any) -> Self:
            try:
                connection = await super().connect(*arguments, **parameters)
            except psycopg.Error as error:
                report(error)
                raise
            report(None)
            return connection

    return Reporting

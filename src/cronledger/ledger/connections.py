"""Connections of replicas, and the pool of those on which steps run."""

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, AsyncCursor, AsyncPipeline, AsyncTransaction
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.rows import Row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from cronledger.ledger.identity import ExpectedLedger
from cronledger.ledger.session_settings import HUNG_SECONDS


def shutdown_socket(connection: AsyncConnection[tuple[Any, ...]]) -> None:
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


class _RoundTrips(AsyncPipeline):
    """A pipeline that sends its statements together, when somebody waits for a result.

    psycopg would wait for the socket before it sends each of them, which takes more CPU time than
    everything else in a step.
    """

    def _communicate_gen(self) -> PQGen[None]:
        queue = self.command_queue
        if queue and queue[-1] == self.pgconn.pipeline_sync:
            self._write_queue(but=1)
            yield from super()._communicate_gen()

    def _fetch_gen(self, *, flush: bool) -> PQGen[None]:
        self._write_queue()
        yield from super()._fetch_gen(flush=flush)

    def _write_queue(self, but: int = 0) -> None:
        """Write the queued commands, except for the last ones, into libpq's buffer."""
        while len(self.command_queue) > but:
            self.command_queue.popleft()()


class StepConnection(AsyncConnection[tuple[Any, ...]]):
    """A connection on which a step takes as few round trips as it has to wait for results.

    BEGIN travels with the first statements of a transaction, and COMMIT with the last ones. A
    cursor ends a round trip with a Sync instead of the Flush of psycopg: for the server, a pipeline
    without a Sync is a statement that continues, so that it does not count the silence of its
    client.

    `expected`: the ledger in which its steps work; each transaction of a step checks it.
    `lock_timeout`: the longest wait for a lock in a step.
    """

    pipelined: AsyncPipeline | None = None
    expected: ExpectedLedger | None = None
    lock_timeout = timedelta(seconds=5)

    @asynccontextmanager
    async def step_pipeline(self) -> AsyncIterator[None]:
        """Run a transaction in pipeline mode. An error ends it, also one that comes with COMMIT."""
        self._pipeline = _RoundTrips(self)
        try:
            # Not `transaction()`, which would end a round trip after BEGIN and one before COMMIT.
            async with self.pipeline() as self.pipelined, AsyncTransaction(self):
                yield
        except BaseException:
            if self.info.transaction_status == TransactionStatus.INERROR:
                with suppress(psycopg.Error):  # the pool discards the connection
                    await self.rollback()
                    if self.prepare_threshold is not None:  # psycopg's own may have been aborted
                        await self.execute("DEALLOCATE ALL")
            raise
        finally:
            self._pipeline = self.pipelined = None


class StepCursor(AsyncCursor[Row]):
    """A cursor of a StepConnection."""

    async def _sync(self) -> None:
        pipeline = getattr(self.connection, "pipelined", None)
        if pipeline is not None and self.pgresult is None:
            await pipeline.sync()

    async def fetchone(self) -> Row | None:
        await self._sync()
        return await super().fetchone()

    async def fetchall(self) -> list[Row]:
        await self._sync()
        return await super().fetchall()


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

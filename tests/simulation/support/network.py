"""What the engine takes for connections: every statement travels, is served and is answered, and
the seed decides how long each way takes and what goes wrong on it.

`Connection` is the client's side: the part of psycopg that the engine uses, with its round trips
and transactions. The server's side is `Session`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg

from cronledger.ledger.connections import StepConnection
from cronledger.ledger.identity import ExpectedLedger
from tests.simulation.support.loop import Process
from tests.simulation.support.request import Request
from tests.simulation.support.session import Session

if TYPE_CHECKING:
    from tests.simulation.support.cluster import Cluster


class Cursor:
    """What a statement answers; in a pipeline the rows are awaited when they are fetched."""

    def __init__(self, connection: "Connection", row_factory: Any = None) -> None:
        self._connection = connection
        self._row_factory = row_factory
        self._request: Request | None = None
        self._taken = 0

    async def execute(self, query: Any, params: Any = None) -> "Cursor":
        self._request = self._connection.send(query, params, self._row_factory)
        self._taken = 0
        if not self._connection.pipelined:
            await self._connection.answered(self._request)
        return self

    async def fetchall(self) -> list[Any]:
        rows = (await self._done()).rows[self._taken :]
        self._taken += len(rows)
        return rows

    async def fetchone(self) -> Any:
        rows = (await self._done()).rows[self._taken : self._taken + 1]
        self._taken += len(rows)
        return rows[0] if rows else None

    async def _done(self) -> Request:
        assert self._request is not None
        return await self._connection.answered(self._request)

    @property
    def rowcount(self) -> int:
        assert self._request is not None
        return self._request.rowcount


class Transaction:
    """As that of a StepConnection."""

    end: Request | None = None

    @property
    def committed(self) -> bool:
        return self.end is not None and self.end.answer.done() and self.end.error is None


class Connection:
    """A connection of one process, in autocommit mode. `expected`: the ledger of its steps."""

    expected: ExpectedLedger | None = None
    # As of a server that knows no limit of whole transactions: real time does not end these.
    info = SimpleNamespace(server_version=150000)

    lock_timeout = StepConnection.lock_timeout

    def __init__(self, cluster: "Cluster", process: Process, name: str) -> None:
        self._cluster = cluster
        self._process = process
        self.name = name
        self.session = Session(cluster, process, self)
        self.pipelined = False
        self._sent: list[Request] = []

    @property
    def process(self) -> Process:
        return self._process

    @property
    def closed(self) -> bool:
        return self.session.broken is not None

    @property
    def waits(self) -> bool:
        return any(not request.answer.done() for request in self._sent)

    def cursor(self, row_factory: Any = None) -> Cursor:
        return Cursor(self, row_factory)

    async def execute(self, query: Any, params: Any = None) -> Cursor:
        return await Cursor(self).execute(query, params)

    def send(self, query: Any, params: Any, row_factory: Any = None) -> Request:
        text = query.encode() if isinstance(query, str) else query
        request = Request(text, params, row_factory, self._cluster.loop.create_future())
        if self.closed:
            request.error = self.session.broken
            request.answer.set_result(request)
        else:
            self._sent.append(request)
            self.session.receive(request)
        return request

    async def answered(self, request: Request) -> Request:
        try:
            return await request.result()
        except asyncio.CancelledError:
            # As psycopg does: the statement is cancelled, and its end is waited for.
            self.session.interrupt()
            await self._all_answered()
            raise

    async def _all_answered(self) -> None:
        for request in self._sent:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(request.answer)
        self._sent = []

    async def sync(self) -> None:
        """Everything that was sent is answered; raises the first error that nobody has seen."""
        sent, self._sent = self._sent, []
        try:
            for request in sent:
                await asyncio.shield(request.answer)
        except asyncio.CancelledError:
            self.session.interrupt()
            self._sent = sent
            await self._all_answered()
            self.session.end_pipeline()
            raise
        self.session.end_pipeline()
        for request in sent:
            if request.error is not None and not request.raised:
                request.raised = True
                raise request.error

    @contextlib.asynccontextmanager
    async def round_trip(self) -> AsyncIterator[None]:
        if self.pipelined:
            yield
            return
        self.pipelined = True
        try:
            try:
                yield
            except BaseException:
                with contextlib.suppress(psycopg.Error):
                    await self.sync()
                raise
            await self.sync()
        except BaseException:
            await self._rollback()
            raise
        finally:
            self.pipelined = False

    @contextlib.asynccontextmanager
    async def begin(self) -> AsyncIterator["Transaction"]:
        async with self.round_trip():
            await self.execute("BEGIN")
            transaction = Transaction()
            yield transaction
            transaction.end = self.send("COMMIT", None, None)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        await self.execute("BEGIN")
        try:
            yield
        except BaseException:
            with contextlib.suppress(psycopg.Error):
                await self.sync()
            await self._rollback()
            raise
        await self.execute("COMMIT")

    async def _rollback(self) -> None:
        if not self.closed and self.session.in_transaction:
            with contextlib.suppress(psycopg.Error):
                await self.answered(self.send("ROLLBACK", None))

    async def close(self) -> None:
        self.session.break_off("the connection is closed")

    def fileno(self) -> int:
        """Whoever asks shuts the socket down: what waits on the connection fails now."""
        self.session.break_off("the socket was shut down", notice_after=1.0)
        return self._cluster.fileno()

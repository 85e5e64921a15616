"""Senders of calls: in the transaction of a caller, or in transactions of their own."""

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from datetime import timedelta
from functools import cache
from typing import Any, Generic, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from cronledger.ledger.access import Access
from cronledger.ledger.callers import psycopg_async_connection, psycopg_connection
from cronledger.ledger.calls import Call, Request
from cronledger.ledger.connections import is_disconnected
from cronledger.ledger.database_errors import REFUSALS, explained
from cronledger.ledger.ends import (
    AsyncEndListener,
    AsyncPauses,
    AsyncPolls,
    EndListener,
    Pauses,
    Polls,
)
from cronledger.ledger.refusals import refusals
from cronledger.ledger.transactions import transaction, transaction_async
from cronledger.logs.loggers import get_logger
from cronledger.rules.remedies import Surface
from cronledger.settings import Settings
from cronledger.tracing.interface import Tracing, tracing_of

T = TypeVar("T")
C = TypeVar("C", bound=psycopg.Connection[Any] | psycopg.AsyncConnection[Any])

log = get_logger(__name__)

APPLICATION_NAME = "cronledger client"
MOST_CONNECTIONS = 10
"""Connections of one client. Further calls wait for one of them."""


class Sender(ABC):
    """Sends calls. Raises LedgerError if the ledger refuses one, and psycopg.Error.

    `actor`: the person or program that requests them; None: the role of the session. `surface`: in
    whose terms remedies are; None: refusals are errors of the database. `listener`: LISTENs for the
    ends of executions that are waited for; None: only polls find them.
    """

    actor: str | None = None
    surface: Surface | None = Surface.CLIENT
    listener: EndListener | None = None

    def __init__(self, schema: str, tracing: Tracing | None) -> None:
        self._schema = schema
        self._tracing = tracing

    @abstractmethod
    def lend(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """Lend the connection of one transaction."""

    @abstractmethod
    def begin(
        self, connection: psycopg.Connection[Any], count: int
    ) -> AbstractContextManager[object]:
        """Run a transaction of `count` calls."""

    def send_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Send calls in one transaction, and return their values."""
        calls = [call.by(self.actor) for call in calls]
        with refusals(self.surface), self.lend() as connection:
            try:
                with self.begin(connection, len(calls)):
                    return [self._send(connection, call) for call in calls]
            except REFUSALS as error:
                records = _records(calls, error)
                # In a transaction of the caller nothing more can be written, and no row remains.
                if records and _is_idle(connection):
                    with suppress(psycopg.Error), self.begin(connection, len(records)):
                        for record in records:
                            self._send(connection, record)
                raise

    def send(self, request: Request[T]) -> T:
        """Send its calls in one transaction, and return its value."""
        return request.joined(self.send_all(request.calls))

    def _send(self, connection: psycopg.Connection[Any], call: Call[T]) -> T:
        with (
            _traced(call, self._tracing) as params,
            psycopg.Cursor(connection, row_factory=dict_row) as cursor,
        ):
            rows = cursor.execute(call.statement(self._schema), params, binary=True).fetchall()
        return call.decode(rows)

    def require_no_transaction(self) -> None:
        """Raise RuntimeError unless each call sees what was committed before it."""
        return

    def awaiting(self, execution_id: int) -> AbstractContextManager[Pauses]:
        """Return the pauses between the polls of a wait for this execution."""
        return (
            nullcontext(Polls()) if self.listener is None else self.listener.awaiting(execution_id)
        )

    def close(self) -> None:
        """Close the connections of the sender, but none of a caller."""
        return


class AsyncSender(ABC):
    """The same for an event loop."""

    actor: str | None = None
    surface: Surface | None = Surface.CLIENT
    listener: AsyncEndListener | None = None

    def __init__(self, schema: str, tracing: Tracing | None) -> None:
        self._schema = schema
        self._tracing = tracing

    @abstractmethod
    def lend(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Lend the connection of one transaction."""

    @abstractmethod
    def begin(
        self, connection: psycopg.AsyncConnection[Any], count: int
    ) -> AbstractAsyncContextManager[object]:
        """Run a transaction of `count` calls."""

    async def send_all(self, calls: Sequence[Call[T]], *, actor: str | None = None) -> list[T]:
        """Send calls in one transaction, and return their values. `actor`: not that of all."""
        calls = [call.by(actor or self.actor) for call in calls]
        with refusals(self.surface):
            async with self.lend() as connection:
                try:
                    async with self.begin(connection, len(calls)):
                        return [await self._send(connection, call) for call in calls]
                except REFUSALS as error:
                    records = _records(calls, error)
                    if records and _is_idle(connection):
                        with suppress(psycopg.Error):
                            async with self.begin(connection, len(records)):
                                for record in records:
                                    await self._send(connection, record)
                    raise

    async def send(self, request: Request[T]) -> T:
        """Send its calls in one transaction, and return its value."""
        return request.joined(await self.send_all(request.calls))

    async def _send(self, connection: psycopg.AsyncConnection[Any], call: Call[T]) -> T:
        with _traced(call, self._tracing) as params:
            async with psycopg.AsyncCursor(connection, row_factory=dict_row) as cursor:
                await cursor.execute(call.statement(self._schema), params, binary=True)
                rows = await cursor.fetchall()
        return call.decode(rows)

    def require_no_transaction(self) -> None:
        """Raise RuntimeError unless each call sees what was committed before it."""
        return

    def awaiting(self, execution_id: int) -> AbstractAsyncContextManager[AsyncPauses]:
        """Return the pauses between the polls of a wait for this execution."""
        return (
            nullcontext(AsyncPolls())
            if self.listener is None
            else self.listener.awaiting(execution_id)
        )

    async def close(self) -> None:
        """Close the connections of the sender, but none of a caller."""
        return


R = TypeVar("R", bound=Sender | AsyncSender)


class HasSender(Generic[R]):
    """A client: the calls of others may use its sender."""

    def __init__(self, sender: R) -> None:
        self.sender = sender


@cache
def default_schema() -> str:
    """Return the schema of the environment, read at the first call. Raises ConfigurationError."""
    return Settings.load().schema_name


@cache
def default_tracing() -> Tracing | None:
    """Return what traces as the environment says, read at the first call.

    Raises ConfigurationError.
    """
    return tracing_of(Settings.load())


def sender_of(caller: object) -> Sender:
    """Return the sender of a client, or a new one for the connection of a caller."""
    if isinstance(caller, HasSender) and isinstance(caller.sender, Sender):
        return caller.sender
    return CallerSender(caller, default_schema(), default_tracing())


def async_sender_of(caller: object) -> AsyncSender:
    """Return the sender of an async client, or a new one for the connection of a caller."""
    if isinstance(caller, HasSender) and isinstance(caller.sender, AsyncSender):
        return caller.sender
    return AsyncCallerSender(caller, default_schema(), default_tracing())


# --- in the transaction of a caller ---------------------------------------------------------------


class CallerSender(Sender):
    """Sends calls in the transaction of `caller`, which it neither begins nor ends.

    On a connection in autocommit mode, each `send_all` is a transaction, which looks the connection
    up, because a session has another one in each of its transactions.
    """

    def __init__(self, caller: object, schema: str, tracing: Tracing | None) -> None:
        super().__init__(schema, tracing)
        self._caller = caller

    def lend(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        return nullcontext(psycopg_connection(self._caller))

    def begin(
        self, connection: psycopg.Connection[Any], count: int
    ) -> AbstractContextManager[object]:
        return connection.transaction() if count > 1 and _is_idle(connection) else nullcontext()

    def require_no_transaction(self) -> None:
        _require_no_transaction(self._caller)


class AsyncCallerSender(AsyncSender):
    """The same for an event loop."""

    def __init__(self, caller: object, schema: str, tracing: Tracing | None) -> None:
        super().__init__(schema, tracing)
        self._caller = caller

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        yield await psycopg_async_connection(self._caller)

    def begin(
        self, connection: psycopg.AsyncConnection[Any], count: int
    ) -> AbstractAsyncContextManager[object]:
        return connection.transaction() if count > 1 and _is_idle(connection) else nullcontext()

    def require_no_transaction(self) -> None:
        _require_no_transaction(self._caller)


class CommandSender(Sender):
    """Each `send_all` is a transaction on the connection of a command."""

    surface = None

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        schema: str,
        lock_timeout: timedelta,
        tracing: Tracing | None,
    ) -> None:
        super().__init__(schema, tracing)
        self._connection = connection
        self._lock_timeout = lock_timeout

    def lend(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        return nullcontext(self._connection)

    def begin(
        self, connection: psycopg.Connection[Any], count: int
    ) -> AbstractContextManager[object]:
        return transaction(connection, self._lock_timeout)


def _is_idle(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Return whether the next statement would be a transaction of its own."""
    idle = connection.info.transaction_status is TransactionStatus.IDLE
    return connection.autocommit and idle


def _require_no_transaction(caller: object) -> None:
    if isinstance(caller, psycopg.Connection | psycopg.AsyncConnection) and _is_idle(caller):
        return
    raise RuntimeError(
        "wait() cannot be called inside a transaction, because what the transaction enqueued starts"
        " after its commit; commit first, and use Client(url), or a psycopg connection in"
        " autocommit mode"
    )


# --- in transactions of its own -------------------------------------------------------------------

# Each transaction sets what it needs, and the session keeps the settings of its role. Behind a
# pooler, other programs use the same sessions.


class _Idle(Generic[C]):
    """Connections that are not in use. Any thread may call this.

    After a fork, the child begins without connections. Those that it inherited stay open, because
    to close them would end the sessions of its parent.
    """

    def __init__(self) -> None:
        self._kept: tuple[int, deque[C]] = (os.getpid(), deque())
        self._inherited: list[deque[C]] = []
        self.closed = False

    def take(self) -> C | None:
        """Return the connection that was used last, or None.

        Raises RuntimeError if the client is closed.
        """
        if self.closed:
            raise RuntimeError("the client is closed; make another one")
        try:
            return self._connections.pop()
        except IndexError:
            return None

    def give_back(self, connection: C) -> list[C]:
        """Keep the connection if it can be used again. Return those that the caller closes."""
        if connection.info.transaction_status is not TransactionStatus.IDLE:
            return [connection]
        self._connections.append(connection)
        # Another thread may have closed the client in between.
        return self.close() if self.closed else []

    def close(self) -> list[C]:
        """Return the connections, which the caller closes."""
        self.closed = True
        found: list[C] = []
        with suppress(IndexError):
            while True:
                found.append(self._connections.pop())
        return found

    @property
    def _connections(self) -> deque[C]:
        process, connections = self._kept
        if process != os.getpid():
            self._inherited.append(connections)
            self._kept = (os.getpid(), connections := deque())
        return connections


class OwnSender(Sender):
    """Each `send_all` is a transaction on a connection of the sender. Threads may share it.

    `listens`: how it connects to LISTEN, or None if it cannot.
    """

    def __init__(
        self,
        access: Access,
        schema: str,
        lock_timeout: timedelta,
        listens: Access | None,
        tracing: Tracing | None,
    ) -> None:
        super().__init__(schema, tracing)
        self._access = access
        self._lock_timeout = lock_timeout
        self.listener = None if listens is None else EndListener(listens, schema)
        self._idle = _Idle[psycopg.Connection[Any]]()
        self._turns = threading.BoundedSemaphore(MOST_CONNECTIONS)

    @contextmanager
    def lend(self) -> Iterator[psycopg.Connection[Any]]:
        with self._turns:
            connection = self._idle.take()
            while connection is not None and is_disconnected(connection):
                connection.close()
                connection = self._idle.take()
            connection = connection or self._access.connect(APPLICATION_NAME, role_settings=True)
            try:
                yield connection
            finally:
                for unused in self._idle.give_back(connection):
                    unused.close()

    def begin(
        self, connection: psycopg.Connection[Any], count: int
    ) -> AbstractContextManager[object]:
        return transaction(connection, self._lock_timeout)

    def close(self) -> None:
        for connection in self._idle.close():
            connection.close()


class AsyncConnections:
    """Lends at most `most` connections to the tasks of one event loop.

    Another loop may use it after the first one is closed.
    """

    def __init__(self, access: Access, name: str, most: int) -> None:
        self._access = access
        self._name = name
        self._most = most
        self._idle = _Idle[psycopg.AsyncConnection[Any]]()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns = asyncio.Semaphore(most)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Lend a connection in autocommit mode that has not ended. Raises psycopg.Error.

        A connection that comes back in a transaction is closed.
        """
        async with self._turns_of_this_loop():
            connection = self._idle.take()
            while connection is not None and is_disconnected(connection):
                await connection.close()
                connection = self._idle.take()
            if connection is None:
                connection = await self._access.connect_async(self._name, role_settings=True)
            try:
                yield connection
            finally:
                for unused in self._idle.give_back(connection):
                    await unused.close()

    def _turns_of_this_loop(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise RuntimeError(
                    "the client is in use by another event loop; make one client for each loop"
                )
            self._loop, self._turns = loop, asyncio.Semaphore(self._most)
        return self._turns

    async def close(self) -> None:
        """Close the connections that are not lent. A later `lend` raises RuntimeError."""
        for connection in self._idle.close():
            await connection.close()


class AsyncOwnSender(AsyncSender):
    """The same for an event loop, whose tasks may share it.

    Another loop may use it after the first one is closed.
    """

    def __init__(
        self,
        access: Access,
        schema: str,
        lock_timeout: timedelta,
        listens: Access | None,
        tracing: Tracing | None,
        *,
        name: str = APPLICATION_NAME,
        most: int = MOST_CONNECTIONS,
    ) -> None:
        super().__init__(schema, tracing)
        self._connections = AsyncConnections(access, name, most)
        self._lock_timeout = lock_timeout
        self.listener = None if listens is None else AsyncEndListener(listens, schema)

    def lend(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        return self._connections.lend()

    def begin(
        self, connection: psycopg.AsyncConnection[Any], count: int
    ) -> AbstractAsyncContextManager[object]:
        return transaction_async(connection, self._lock_timeout)

    async def close(self) -> None:
        await self._connections.close()


# --- statements -----------------------------------------------------------------------------------

# A cursor of psycopg itself, whatever cursors the connection makes. Binary results do not depend on
# the settings of the session, nor on the loaders that other libraries register for text.


@contextmanager
def _traced(call: Call[Any], tracing: Tracing | None) -> Iterator[Mapping[str, Any]]:
    """Yield the parameters of a call, in a span if the call enqueues and `tracing` is on."""
    if tracing is None or not call.enqueues:
        yield call.params
        return
    with enqueuing(tracing, call.params["job"], call.enqueues) as traceparent:
        yield {**call.params, "traceparent": traceparent}


@contextmanager
def enqueuing(tracing: Tracing | None, job: str, count: int) -> Iterator[str | None]:
    """Yield the traceparent of the span of an enqueuing call, or None without a trace.

    What the SDK of the program raises is logged. It changes no call, because the caller would
    repeat a call that is committed.
    """
    span: AbstractContextManager[str | None] = nullcontext()
    traceparent = None
    if tracing is not None:
        try:
            span = tracing.enqueuing(job, count)
            traceparent = span.__enter__()
        except Exception:
            log.exception("span_failed")
            span = nullcontext()
    try:
        yield traceparent
    except BaseException as error:
        _end(span, error)
        raise
    _end(span, None)


def _end(span: AbstractContextManager[object], error: BaseException | None) -> None:
    try:
        if error is None:
            span.__exit__(None, None, None)
        else:
            span.__exit__(type(error), error, error.__traceback__)
    except Exception:
        log.exception("span_failed")


def _records(calls: Sequence[Call[Any]], error: psycopg.Error) -> list[Call[None]]:
    """Return the calls that record in the audit trail that the ledger refused these.

    A refusal that cannot be recorded, such as for a role without the right to, stays the error of
    the caller.
    """
    message = explained(error, Surface.CLIENT).message
    return [record for call in calls if (record := call.refused(message)) is not None]

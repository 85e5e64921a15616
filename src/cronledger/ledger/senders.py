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
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import dict_row

from cronledger.ledger import queries
from cronledger.ledger.access import Access
from cronledger.ledger.callers import psycopg_async_connection, psycopg_connection
from cronledger.ledger.calls import Call
from cronledger.ledger.connections import is_disconnected
from cronledger.ledger.ends import (
    AsyncEndListener,
    AsyncPauses,
    AsyncPolls,
    EndListener,
    Pauses,
    Polls,
)
from cronledger.ledger.refusals import LedgerError, refusals
from cronledger.ledger.transactions import transaction, transaction_async
from cronledger.logger import get_logger
from cronledger.settings import Settings
from cronledger.tracing.interface import Tracing, tracing_of

T = TypeVar("T")
C = TypeVar("C", bound=psycopg.Connection[Any] | psycopg.AsyncConnection[Any])

log = get_logger(__name__)

APPLICATION_NAME = "cronledger client"
MOST_CONNECTIONS = 10
"""Connections of one client. Further calls wait for one of them."""


class Sender(ABC):
    """Sends calls. Raises LedgerError if the ledger refuses one, and psycopg.Error."""

    @abstractmethod
    def send_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Send calls in one transaction, and return their values."""

    def send(self, call: Call[T]) -> T:
        """Send a call, and return its value."""
        return self.send_all([call])[0]

    @abstractmethod
    def require_no_transaction(self) -> None:
        """Raise RuntimeError unless each call sees what was committed before it."""

    def awaiting(self, execution_id: int) -> AbstractContextManager[Pauses]:
        """Return the pauses between the polls of a wait for this execution."""
        return nullcontext(Polls())

    @abstractmethod
    def close(self) -> None:
        """Close the connections of the sender, but none of a caller."""


class AsyncSender(ABC):
    """The same for an event loop."""

    @abstractmethod
    async def send_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Send calls in one transaction, and return their values."""

    async def send(self, call: Call[T]) -> T:
        """Send a call, and return its value."""
        return (await self.send_all([call]))[0]

    @abstractmethod
    def require_no_transaction(self) -> None:
        """Raise RuntimeError unless each call sees what was committed before it."""

    def awaiting(self, execution_id: int) -> AbstractAsyncContextManager[AsyncPauses]:
        """Return the pauses between the polls of a wait for this execution."""
        return nullcontext(AsyncPolls())

    @abstractmethod
    async def close(self) -> None:
        """Close the connections of the sender, but none of a caller."""


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
        self._caller = caller
        self._schema = schema
        self._tracing = tracing

    def send_all(self, calls: Sequence[Call[T]]) -> list[T]:
        connection = psycopg_connection(self._caller)
        try:
            with refusals(), _together(connection, len(calls)):
                return [_send(connection, self._schema, call, self._tracing) for call in calls]
        except LedgerError as error:
            # In a transaction of the caller nothing more can be written, and no row remains.
            if _is_idle(connection):
                with suppress(psycopg.Error):
                    _record(connection, self._schema, calls, error)
            raise

    def require_no_transaction(self) -> None:
        _require_no_transaction(self._caller)

    def close(self) -> None:
        return


class AsyncCallerSender(AsyncSender):
    """The same for an event loop."""

    def __init__(self, caller: object, schema: str, tracing: Tracing | None) -> None:
        self._caller = caller
        self._schema = schema
        self._tracing = tracing

    async def send_all(self, calls: Sequence[Call[T]]) -> list[T]:
        connection = await psycopg_async_connection(self._caller)
        try:
            with refusals():
                if len(calls) > 1 and _is_idle(connection):
                    async with connection.transaction():
                        return [await self._send(connection, call) for call in calls]
                return [await self._send(connection, call) for call in calls]
        except LedgerError as error:
            if _is_idle(connection):
                with suppress(psycopg.Error):
                    await _record_async(connection, self._schema, calls, error)
            raise

    async def _send(self, connection: psycopg.AsyncConnection[Any], call: Call[T]) -> T:
        return await _send_async(connection, self._schema, call, self._tracing)

    def require_no_transaction(self) -> None:
        _require_no_transaction(self._caller)

    async def close(self) -> None:
        return


def _together(connection: psycopg.Connection[Any], count: int) -> AbstractContextManager[object]:
    return connection.transaction() if count > 1 and _is_idle(connection) else nullcontext()


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
        self._access = access
        self._schema = schema
        self._lock_timeout = lock_timeout
        self._tracing = tracing
        self._listener = None if listens is None else EndListener(listens, schema)
        self._idle = _Idle[psycopg.Connection[Any]]()
        self._turns = threading.BoundedSemaphore(MOST_CONNECTIONS)

    def send_all(self, calls: Sequence[Call[T]]) -> list[T]:
        with self._turns, self._connection() as connection:
            try:
                with refusals(), transaction(connection, self._lock_timeout):
                    return [_send(connection, self._schema, call, self._tracing) for call in calls]
            except LedgerError as error:
                with suppress(psycopg.Error), transaction(connection, self._lock_timeout):
                    _record(connection, self._schema, calls, error)
                raise

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
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

    def require_no_transaction(self) -> None:
        return

    def awaiting(self, execution_id: int) -> AbstractContextManager[Pauses]:
        if self._listener is None:
            return super().awaiting(execution_id)
        return self._listener.awaiting(execution_id)

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
    ) -> None:
        self._connections = AsyncConnections(access, APPLICATION_NAME, MOST_CONNECTIONS)
        self._schema = schema
        self._lock_timeout = lock_timeout
        self._tracing = tracing
        self._listener = None if listens is None else AsyncEndListener(listens, schema)

    async def send_all(self, calls: Sequence[Call[T]]) -> list[T]:
        async with self._connections.lend() as connection:
            try:
                with refusals():
                    async with transaction_async(connection, self._lock_timeout):
                        return [await self._send(connection, call) for call in calls]
            except LedgerError as error:
                with suppress(psycopg.Error):
                    async with transaction_async(connection, self._lock_timeout):
                        await _record_async(connection, self._schema, calls, error)
                raise

    async def _send(self, connection: psycopg.AsyncConnection[Any], call: Call[T]) -> T:
        return await _send_async(connection, self._schema, call, self._tracing)

    def require_no_transaction(self) -> None:
        return

    def awaiting(self, execution_id: int) -> AbstractAsyncContextManager[AsyncPauses]:
        if self._listener is None:
            return super().awaiting(execution_id)
        return self._listener.awaiting(execution_id)

    async def close(self) -> None:
        await self._connections.close()


# --- statements -----------------------------------------------------------------------------------

# A cursor of psycopg itself, whatever cursors the connection makes. Binary results do not depend on
# the settings of the session, nor on the loaders that other libraries register for text.


def _send(
    connection: psycopg.Connection[Any], schema: str, call: Call[T], tracing: Tracing | None = None
) -> T:
    with (
        _traced(call, tracing) as params,
        psycopg.Cursor(connection, row_factory=dict_row) as cursor,
    ):
        queries.run(cursor, call.name, schema, params, binary=True)
        rows = cursor.fetchall()
    return call.decode(rows)


async def _send_async(
    connection: psycopg.AsyncConnection[Any],
    schema: str,
    call: Call[T],
    tracing: Tracing | None = None,
) -> T:
    with _traced(call, tracing) as params:
        async with psycopg.AsyncCursor(connection, row_factory=dict_row) as cursor:
            cursor.format = Format.BINARY
            await queries.run_async(cursor, call.name, schema, params)
            rows = await cursor.fetchall()
    return call.decode(rows)


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


# A refusal that could not be recorded, such as for a role without the right to, stays the error of
# the caller.


def _record(
    connection: psycopg.Connection[Any], schema: str, calls: Sequence[Call[T]], error: LedgerError
) -> None:
    """Record in the audit trail that the ledger refused these calls."""
    for call in calls:
        if (record := call.refused(error.message)) is not None:
            _send(connection, schema, record)


async def _record_async(
    connection: psycopg.AsyncConnection[Any],
    schema: str,
    calls: Sequence[Call[T]],
    error: LedgerError,
) -> None:
    for call in calls:
        if (record := call.refused(error.message)) is not None:
            await _send_async(connection, schema, record)

"""Senders of calls: in the transaction of a caller, or in transactions of their own.

`Sender` sends on blocking connections and `AsyncSender` in an event loop, with the same bodies
(`ledger.blocking`).
"""

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
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
from typing import Any, ClassVar, Generic, Self, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from cronledger.ledger.access import Access
from cronledger.ledger.blocking import Manager, completed, entered, result
from cronledger.ledger.callers import psycopg_async_connection, psycopg_connection
from cronledger.ledger.calls import Call, Request
from cronledger.ledger.connections import is_disconnected
from cronledger.ledger.database_errors import REFUSALS, explained
from cronledger.ledger.ends import EndListener, Pauses, TaskAlarm, ThreadAlarm
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


# --- connections and their transactions -----------------------------------------------------------


class Transactions(ABC, Generic[C]):
    """The transactions of a sender."""

    @abstractmethod
    def lend(self) -> AbstractAsyncContextManager[C]:
        """Lend the connection of one transaction."""

    @abstractmethod
    def begin(self, connection: C, count: int) -> Manager[object]:
        """Run a transaction of `count` calls."""

    def require_no_transaction(self) -> None:
        """Raise RuntimeError unless each call sees what was committed before it."""
        return

    async def close(self) -> None:
        """Close the connections of the sender, but none of a caller."""
        return


class CallerTransactions(Transactions[C]):
    """The transaction of `caller`, which its sender neither begins nor ends.

    On a connection in autocommit mode, each `send_all` is a transaction. `find` returns the
    connection for each of them, because a session has another one in each of its transactions.
    """

    def __init__(
        self, find: Callable[[object], C | Coroutine[Any, Any, C]], caller: object
    ) -> None:
        self._find = find
        self._caller = caller

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[C]:
        yield await result(self._find(self._caller))

    def begin(self, connection: C, count: int) -> Manager[object]:
        return connection.transaction() if count > 1 and _is_idle(connection) else nullcontext()

    def require_no_transaction(self) -> None:
        caller = self._caller
        if isinstance(caller, psycopg.Connection | psycopg.AsyncConnection) and _is_idle(caller):
            return
        raise RuntimeError(
            "wait() cannot be called inside a transaction, because what the transaction enqueued"
            " starts after its commit; commit first, and use Client(url), or a psycopg connection"
            " in autocommit mode"
        )


class CommandTransactions(Transactions[psycopg.Connection[Any]]):
    """Each `send_all` is a transaction on the connection of a command."""

    def __init__(self, connection: psycopg.Connection[Any], lock_timeout: timedelta) -> None:
        self._connection = connection
        self._lock_timeout = lock_timeout

    def lend(self) -> AbstractAsyncContextManager[psycopg.Connection[Any]]:
        return nullcontext(self._connection)

    def begin(self, connection: psycopg.Connection[Any], count: int) -> Manager[object]:
        return transaction(connection, self._lock_timeout)


class Connections(Transactions[C]):
    """Each `send_all` is a transaction on one of at most `most` connections, which are kept.

    A transaction sets what it needs, and the session keeps the settings of its role. Behind a
    pooler, other programs use the same sessions.

    After a fork, the child begins without connections. Those that it inherited stay open, because
    to close them would end the sessions of its parent.
    """

    def __init__(self, access: Access, name: str, most: int) -> None:
        self._access = access
        self._name = name
        self._most = most
        self._kept: tuple[int, deque[C]] = (os.getpid(), deque())
        self._inherited: list[deque[C]] = []
        self._closed = False

    @abstractmethod
    def _connect(self) -> C | Coroutine[Any, Any, C]: ...

    @abstractmethod
    def _turn(self) -> Manager[object]:
        """Return the semaphore of the loans."""

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[C]:
        """Lend a connection in autocommit mode that has not ended. Raises psycopg.Error.

        A connection that comes back in a transaction is closed. Raises RuntimeError after `close`.
        """
        async with entered(self._turn()):
            connection = self._take()
            while connection is not None and is_disconnected(connection):
                await result(connection.close())
                connection = self._take()
            if connection is None:
                self._require_open()
                connection = await result(self._connect())
            try:
                yield connection
            finally:
                if connection.info.transaction_status is TransactionStatus.IDLE:
                    self._unused.append(connection)
                else:
                    await result(connection.close())
                if self._closed:  # meanwhile, by another thread or task
                    await self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("the client is closed; make another one")

    async def close(self) -> None:
        """Close the connections that are not lent. A later `lend` raises RuntimeError."""
        self._closed = True
        while (connection := self._take()) is not None:
            await result(connection.close())

    def _take(self) -> C | None:
        """Return the connection that was used last, or None. Any thread may call this."""
        with suppress(IndexError):
            return self._unused.pop()
        return None

    @property
    def _unused(self) -> deque[C]:
        process, connections = self._kept
        if process != os.getpid():
            self._inherited.append(connections)
            self._kept = (os.getpid(), connections := deque())
        return connections


class BlockingConnections(Connections[psycopg.Connection[Any]]):
    """Connections that threads share."""

    def __init__(self, access: Access, name: str, most: int) -> None:
        super().__init__(access, name, most)
        self._turns = threading.BoundedSemaphore(most)

    def begin(self, connection: psycopg.Connection[Any], count: int) -> Manager[object]:
        return transaction(connection, self._access.lock_timeout)

    def _connect(self) -> psycopg.Connection[Any]:
        return self._access.connect(self._name, role_settings=True)

    def _turn(self) -> Manager[object]:
        return self._turns


class AsyncConnections(Connections[psycopg.AsyncConnection[Any]]):
    """Connections that the tasks of one event loop share.

    Another loop may use them after the first one is closed.
    """

    _turns: asyncio.Semaphore
    _loop: asyncio.AbstractEventLoop | None = None

    def begin(
        self, connection: psycopg.AsyncConnection[Any], count: int
    ) -> AbstractAsyncContextManager[object]:
        return transaction_async(connection, self._access.lock_timeout)

    def _connect(self) -> Coroutine[Any, Any, psycopg.AsyncConnection[Any]]:
        return self._access.connect_async(self._name, role_settings=True)

    def _turn(self) -> Manager[object]:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise RuntimeError(
                    "the client is in use by another event loop; make one client for each loop"
                )
            self._loop, self._turns = loop, asyncio.Semaphore(self._most)
        return self._turns


def _is_idle(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Return whether the next statement would be a transaction of its own."""
    idle = connection.info.transaction_status is TransactionStatus.IDLE
    return connection.autocommit and idle


# --- senders --------------------------------------------------------------------------------------


class _Sending(Generic[C]):
    """What both kinds of sender do. They raise LedgerError for a refusal, and psycopg.Error.

    `actor`: the person or program that requests the calls; None: the role of the session.
    `surface`: in whose terms remedies are; None: refusals are errors of the database. `listener`:
    LISTENs for the ends of executions that are waited for; None: only polls find them.
    """

    surface: Surface | None = Surface.CLIENT

    _find: Callable[[object], Any]
    _connections: ClassVar[Callable[..., Connections[Any]]]
    _alarm: ClassVar[type[ThreadAlarm | TaskAlarm]]

    def __init__(
        self,
        transactions: Transactions[C],
        schema: str,
        tracing: Tracing | None,
        listener: EndListener | None = None,
    ) -> None:
        self.actor: str | None = None
        self.listener = listener
        self.transactions = transactions
        self._schema = schema
        self._tracing = tracing

    @classmethod
    def of_caller(cls, caller: object, schema: str, tracing: Tracing | None) -> Self:
        """Return a sender in the transaction of `caller`."""
        return cls(CallerTransactions(cls._find, caller), schema, tracing)

    @classmethod
    def connecting(
        cls,
        access: Access,
        schema: str,
        listens: Access | None,
        tracing: Tracing | None,
        *,
        name: str = APPLICATION_NAME,
        most: int = MOST_CONNECTIONS,
    ) -> Self:
        """Return a sender with connections of its own.

        `listens`: how it connects to LISTEN, or None if it cannot.
        """
        listener = None if listens is None else EndListener(listens, schema)
        return cls(cls._connections(access, name, most), schema, tracing, listener)

    async def _all(self, calls: Sequence[Call[T]], actor: str | None = None) -> list[T]:
        calls = [call.by(actor or self.actor) for call in calls]
        begin = self.transactions.begin
        with refusals(self.surface):
            async with self.transactions.lend() as connection:
                try:
                    async with entered(begin(connection, len(calls))):
                        return [await self._value(connection, call) for call in calls]
                except REFUSALS as error:
                    records = _records(calls, error)
                    # In a transaction of the caller nothing more can be written, and no row
                    # remains.
                    if records and _is_idle(connection):
                        with suppress(psycopg.Error):
                            async with entered(begin(connection, len(records))):
                                for record in records:
                                    await self._value(connection, record)
                    raise

    async def _value(self, connection: C, call: Call[T]) -> T:
        # A cursor of psycopg itself, whatever cursors the connection makes. Binary results do not
        # depend on the settings of the session, nor on the loaders that other libraries register
        # for text.
        is_blocking = isinstance(connection, psycopg.Connection)
        kind: Any = psycopg.Cursor if is_blocking else psycopg.AsyncCursor
        cursor = kind(connection, row_factory=dict_row)
        with _traced(call, self._tracing) as params:
            await result(cursor.execute(call.statement(self._schema), params, binary=True))
            rows = await result(cursor.fetchall())
        return call.decode(rows)

    def require_no_transaction(self) -> None:
        """Raise RuntimeError unless each call sees what was committed before it."""
        self.transactions.require_no_transaction()

    def awaiting(self, execution_id: int) -> Pauses:
        """Return the pauses between the polls of a wait for this execution."""
        return Pauses(execution_id, self._alarm(), self.listener)


class Sender(_Sending[psycopg.Connection[Any]]):
    """Sends calls on blocking connections. If they are its own, threads may share it."""

    _find = staticmethod(psycopg_connection)
    _connections = BlockingConnections
    _alarm = ThreadAlarm

    def send_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Send calls in one transaction, and return their values."""
        return completed(self._all(calls))

    def send(self, request: Request[T]) -> T:
        """Send its calls in one transaction, and return its value."""
        return request.joined(self.send_all(request.calls))

    def close(self) -> None:
        """Close the connections of the sender, but none of a caller."""
        completed(self.transactions.close())


class AsyncSender(_Sending[psycopg.AsyncConnection[Any]]):
    """The same for an event loop, whose tasks may share it."""

    _find = staticmethod(psycopg_async_connection)
    _connections = AsyncConnections
    _alarm = TaskAlarm

    async def send_all(self, calls: Sequence[Call[T]], *, actor: str | None = None) -> list[T]:
        """Send calls in one transaction, and return their values. `actor`: not that of all."""
        return await self._all(calls, actor)

    async def send(self, request: Request[T]) -> T:
        """Send its calls in one transaction, and return its value."""
        return request.joined(await self.send_all(request.calls))

    async def close(self) -> None:
        """Close the connections of the sender, but none of a caller."""
        await self.transactions.close()


R = TypeVar("R", Sender, AsyncSender)


class HasSender(Generic[R]):
    """A client: the calls of others may use its sender."""

    def __init__(self, sender: R) -> None:
        self.sender: R = sender


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


def sender_of(kind: type[R], caller: object) -> R:
    """Return the sender of a client, or a new one for the connection of a caller."""
    if isinstance(caller, HasSender) and isinstance(caller.sender, kind):
        return caller.sender
    return kind.of_caller(caller, default_schema(), default_tracing())


# --- spans and refusals ---------------------------------------------------------------------------


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

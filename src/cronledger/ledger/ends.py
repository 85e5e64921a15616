"""Notifications of the ends of executions, for the calls of `wait` of one client.

While such calls last, one connection LISTENs for all of them. A notification is only a hint, after
which the call reads the execution. Between hints it polls, so it needs no notification.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, repeat
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

import psycopg
from psycopg import sql

from cronledger.ledger.access import Access
from cronledger.ledger.connections import shutdown_socket
from cronledger.ledger.schemas import ended_channel
from cronledger.ledger.session_settings import limit_unread
from cronledger.logs.loggers import get_logger
from cronledger.rules.masks import masked

log = get_logger(__name__)

NAME = "cronledger wait"
LISTEN_AFTER_SECONDS = 0.1
"""A shorter wait does not LISTEN, because to connect costs more than its polls."""
ANNOUNCE_SECONDS = 30.0
"""The time after which a wait is announced again. The replicas forget it after 90 s."""
LONGEST_BACKOFF = 15.0


class Pauses(Protocol):
    """The pauses of one wait between its polls."""

    def announces(self, waited: float) -> bool:
        """Return whether the wait has to be announced to the replicas now, instead of a pause.

        `waited`: the seconds that the wait has lasted.
        """

    def pause(self, seconds: float) -> None:
        """Return after `seconds`, or sooner if the execution may have ended."""


class AsyncPauses(Protocol):
    """The same for an event loop."""

    def announces(self, waited: float) -> bool: ...
    async def pause(self, seconds: float) -> None: ...


class Polls:
    """The pauses where no connection may LISTEN."""

    def announces(self, waited: float) -> bool:
        return False

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)


class AsyncPolls:
    """The same for an event loop."""

    def announces(self, waited: float) -> bool:
        return False

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


E = TypeVar("E", threading.Event, asyncio.Event)


@dataclass(eq=False, slots=True)
class _Wait(Generic[E]):
    """One wait. `announced_at`: monotonic; None: not since the connection LISTENs."""

    execution_id: int
    woken: E
    announced_at: float | None = None


class _Waits(Generic[E]):
    """The waits that share a connection. They are woken by a notification, and when it LISTENs."""

    def __init__(self) -> None:
        self._listening = False
        self._by_id: dict[str, set[_Wait[E]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def add(self, wait: _Wait[E]) -> None:
        self._by_id.setdefault(str(wait.execution_id), set()).add(wait)

    def remove(self, wait: _Wait[E]) -> None:
        same = self._by_id[str(wait.execution_id)]
        same.remove(wait)
        if not same:
            del self._by_id[str(wait.execution_id)]

    def announces(self, wait: _Wait[E]) -> bool:
        if not self._listening:
            return False
        at, now = wait.announced_at, monotonic()
        if at is not None and now < at + ANNOUNCE_SECONDS:
            return False
        wait.announced_at = now
        return True

    def connected(self) -> None:
        self._listening = True
        for wait in chain.from_iterable(self._by_id.values()):
            wait.announced_at = None  # what was notified before was missed
            wait.woken.set()

    def lost(self) -> None:
        self._listening = False

    def notified(self, execution_id: str) -> None:
        for wait in self._by_id.get(execution_id, ()):
            wait.woken.set()


def _listen(schema: str) -> sql.Composed:
    return sql.SQL("LISTEN {}").format(sql.Identifier(ended_channel(schema)))


def _backoff() -> Iterator[float]:
    return chain((0.1, 0.5, 2.0, 5.0), repeat(LONGEST_BACKOFF))


class _FailureLog:
    """Logs the first failure since the last success."""

    def __init__(self) -> None:
        self._failed = False

    def succeeded(self) -> None:
        self._failed = False

    def failed(self, error: Exception) -> None:
        if not self._failed:
            why = masked(str(error).strip().partition("\n")[0]) or type(error).__name__
            log.warning("wait_cannot_listen", error=why)
        self._failed = True


# --- threads --------------------------------------------------------------------------------------


class EndListener:
    """Wakes the waits of threads. A thread of its own LISTENs while there are any."""

    def __init__(self, access: Access, schema: str) -> None:
        self._access = access
        self._schema = schema
        self._lock = threading.Lock()
        self._session: _Session | None = None

    @contextmanager
    def awaiting(self, execution_id: int) -> Iterator[Pauses]:
        """Yield the pauses of a wait for this execution."""
        pauses = _ThreadPauses(self, _Wait(execution_id, threading.Event()))
        try:
            yield pauses
        finally:
            pauses.leave()

    def join(self, wait: _Wait[threading.Event]) -> "_Session":
        """Add the wait to those for which a connection LISTENs, and return its session."""
        with self._lock:
            if self._session is None:
                self._session = _Session(self._access, self._schema)
            self._session.add(wait)
            return self._session

    def leave(self, session: "_Session", wait: _Wait[threading.Event]) -> None:
        """Remove the wait. The last one ends the session."""
        with self._lock:
            if session.remove(wait) and self._session is session:
                self._session = None


class _ThreadPauses:
    def __init__(self, listener: EndListener, wait: _Wait[threading.Event]) -> None:
        self._listener = listener
        self._wait = wait
        self._session: _Session | None = None

    def announces(self, waited: float) -> bool:
        if self._session is None:
            if waited < LISTEN_AFTER_SECONDS:
                return False
            self._session = self._listener.join(self._wait)
        return self._session.announces(self._wait)

    def pause(self, seconds: float) -> None:
        self._wait.woken.wait(seconds)
        self._wait.woken.clear()

    def leave(self) -> None:
        if self._session is not None:
            self._listener.leave(self._session, self._wait)


class _Session:
    """A thread and its connection, from the first wait to the end of the last one."""

    def __init__(self, access: Access, schema: str) -> None:
        self._access = access
        self._schema = schema
        self._lock = threading.Lock()
        self._waits = _Waits[threading.Event]()
        self._ended = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        threading.Thread(target=self._run, name=NAME, daemon=True).start()

    def add(self, wait: _Wait[threading.Event]) -> None:
        with self._lock:
            self._waits.add(wait)

    def remove(self, wait: _Wait[threading.Event]) -> bool:
        """Remove the wait. Return whether it was the last one, which ends the session."""
        with self._lock:
            self._waits.remove(wait)
            if self._waits:
                return False
            self._ended.set()
            if self._connection is not None:
                shutdown_socket(self._connection)  # so that the thread stops waiting
            return True

    def announces(self, wait: _Wait[threading.Event]) -> bool:
        with self._lock:
            return self._waits.announces(wait)

    def _run(self) -> None:
        failures, delays = _FailureLog(), _backoff()
        while not self._ended.is_set():
            try:
                self._listen(failures.succeeded)
            except (psycopg.Error, OSError) as error:
                if not self._ended.is_set():
                    failures.failed(error)
            self._ended.wait(next(delays))

    def _listen(self, succeeded: Callable[[], None]) -> None:
        """Connect, and pass notifications on. Raises psycopg.Error when the connection fails."""
        with self._access.connect(NAME) as connection:
            connection.execute(limit_unread(self._access.tcp_user_timeout))
            connection.execute(_listen(self._schema))
            with self._lock:
                if self._ended.is_set():
                    return
                self._connection = connection
                self._waits.connected()
            succeeded()
            try:
                for note in connection.notifies():
                    with self._lock:
                        self._waits.notified(note.payload)
            finally:
                with self._lock:
                    self._connection = None
                    self._waits.lost()


# --- an event loop --------------------------------------------------------------------------------


class AsyncEndListener:
    """Wakes the waits of an event loop. A task LISTENs while there are any."""

    def __init__(self, access: Access, schema: str) -> None:
        self._access = access
        self._schema = schema
        self._session: _AsyncSession | None = None

    @asynccontextmanager
    async def awaiting(self, execution_id: int) -> AsyncIterator[AsyncPauses]:
        """Yield the pauses of a wait for this execution."""
        pauses = _TaskPauses(self, _Wait(execution_id, asyncio.Event()))
        try:
            yield pauses
        finally:
            await pauses.leave()

    def join(self, wait: _Wait[asyncio.Event]) -> "_AsyncSession":
        """Add the wait to those for which a connection LISTENs, and return its session."""
        if self._session is None or self._session.loop is not asyncio.get_running_loop():
            self._session = _AsyncSession(self._access, self._schema)
        self._session.waits.add(wait)
        return self._session

    async def leave(self, session: "_AsyncSession", wait: _Wait[asyncio.Event]) -> None:
        """Remove the wait. The last one ends the session."""
        session.waits.remove(wait)
        if not session.waits:
            if self._session is session:
                self._session = None
            await session.close()


class _TaskPauses:
    def __init__(self, listener: AsyncEndListener, wait: _Wait[asyncio.Event]) -> None:
        self._listener = listener
        self._wait = wait
        self._session: _AsyncSession | None = None

    def announces(self, waited: float) -> bool:
        if self._session is None:
            if waited < LISTEN_AFTER_SECONDS:
                return False
            self._session = self._listener.join(self._wait)
        return self._session.waits.announces(self._wait)

    async def pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wait.woken.wait()
        self._wait.woken.clear()

    async def leave(self) -> None:
        if self._session is not None:
            await self._listener.leave(self._session, self._wait)


class _AsyncSession:
    """A task and its connection, from the first wait to the end of the last one."""

    def __init__(self, access: Access, schema: str) -> None:
        self._access = access
        self._schema = schema
        self.waits = _Waits[asyncio.Event]()
        self.loop = asyncio.get_running_loop()
        self._task = self.loop.create_task(self._run(), name=NAME)

    async def close(self) -> None:
        """End the task, and wait until its connection is closed."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        failures = _FailureLog()
        for delay in _backoff():
            try:
                await self._listen(failures.succeeded)
            except (psycopg.Error, OSError) as error:
                failures.failed(error)
            await asyncio.sleep(delay)

    async def _listen(self, succeeded: Callable[[], None]) -> None:
        """Connect, and pass notifications on. Raises psycopg.Error when the connection fails."""
        connection = await self._access.connect_async(NAME)
        try:
            await connection.execute(limit_unread(self._access.tcp_user_timeout))
            await connection.execute(_listen(self._schema))
            self.waits.connected()
            succeeded()
            async for note in connection.notifies():
                self.waits.notified(note.payload)
        finally:
            self.waits.lost()
            await connection.close()

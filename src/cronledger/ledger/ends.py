"""Notifications of the ends of executions, for the calls of `wait` of one client.

While such calls last, a thread LISTENs for all of them on one connection. A notification is only a
hint, after which the call reads the execution. Between hints it polls, so it needs no notification.
"""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, repeat
from time import monotonic
from typing import Any, Self

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


class ThreadAlarm:
    """Ends the pause of a thread. Any thread may call `ring`."""

    def __init__(self) -> None:
        self._rung = threading.Event()
        self.ring = self._rung.set

    def pause(self, seconds: float) -> None:
        """Return after `seconds`, or when the alarm rings."""
        self._rung.wait(seconds)
        self._rung.clear()


class TaskAlarm:
    """The same for a task of the running event loop."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def ring(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._rung.set)

    async def pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()


class Pauses:
    """The pauses of one wait between its polls. A context manager.

    `alarm` rings when the execution may have ended. `listener`: None: it never rings.
    """

    def __init__(
        self, execution_id: int, alarm: ThreadAlarm | TaskAlarm, listener: "EndListener | None"
    ) -> None:
        self.execution_id = execution_id
        self.alarm = alarm
        self.pause = alarm.pause
        self.announced_at: float | None = None
        """Monotonic; None: not since the connection LISTENs."""
        self._listener = listener
        self._session: _Session | None = None

    def announces(self, waited: float) -> bool:
        """Return whether the wait has to be announced to the replicas now, instead of a pause.

        `waited`: the seconds that the wait has lasted.
        """
        if self._session is None:
            if self._listener is None or waited < LISTEN_AFTER_SECONDS:
                return False
            self._session = self._listener.join(self)
        return self._session.announces(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._listener is not None and self._session is not None:
            self._listener.leave(self._session, self)


class EndListener:
    """Rings the alarms of waits. A thread LISTENs while there are any."""

    def __init__(self, access: Access, schema: str) -> None:
        self._access = access
        self._schema = schema
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._session: _Session | None = None

    def join(self, wait: Pauses) -> "_Session":
        """Add the wait to those for which a connection LISTENs, and return its session."""
        if self._pid != os.getpid():  # a fork has no threads, and may have copied a held lock
            self._pid, self._lock, self._session = os.getpid(), threading.Lock(), None
        with self._lock:
            if self._session is None:
                self._session = _Session(self._access, self._schema)
            self._session.add(wait)
            return self._session

    def leave(self, session: "_Session", wait: Pauses) -> None:
        """Remove the wait. The last one ends the session."""
        with self._lock:
            if session.remove(wait) and self._session is session:
                self._session = None


class _Session:
    """A thread and its connection, from the first wait to the end of the last one."""

    def __init__(self, access: Access, schema: str) -> None:
        self._access = access
        self._listen = sql.SQL("LISTEN {}").format(sql.Identifier(ended_channel(schema)))
        self._lock = threading.Lock()
        self._waits: dict[str, set[Pauses]] = {}
        self._ended = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        threading.Thread(target=self._run, name=NAME, daemon=True).start()

    def add(self, wait: Pauses) -> None:
        with self._lock:
            self._waits.setdefault(str(wait.execution_id), set()).add(wait)

    def remove(self, wait: Pauses) -> bool:
        """Remove the wait. Return whether it was the last one, which ends the session."""
        with self._lock:
            same = self._waits[str(wait.execution_id)]
            same.remove(wait)
            if not same:
                del self._waits[str(wait.execution_id)]
            if self._waits:
                return False
            self._ended.set()
            if self._connection is not None:
                shutdown_socket(self._connection)  # so that the thread stops waiting
            return True

    def announces(self, wait: Pauses) -> bool:
        with self._lock:
            at, now = wait.announced_at, monotonic()
            if self._connection is None or (at is not None and now < at + ANNOUNCE_SECONDS):
                return False
            wait.announced_at = now
            return True

    def _run(self) -> None:
        is_logged = False
        for delay in _backoff():
            try:
                with self._access.connect(NAME) as connection:
                    connection.execute(limit_unread(self._access.tcp_user_timeout))
                    connection.execute(self._listen)
                    is_logged = False
                    self._receive(connection)
            except (psycopg.Error, OSError) as error:
                if not self._ended.is_set() and not is_logged:
                    why = masked(str(error).strip().partition("\n")[0]) or type(error).__name__
                    log.warning("wait_cannot_listen", error=why)
                    is_logged = True
            if self._ended.wait(delay):
                return

    def _receive(self, connection: psycopg.Connection[Any]) -> None:
        """Pass notifications on. Raises psycopg.Error when the connection fails."""
        with self._lock:
            if self._ended.is_set():
                return
            self._connection = connection
            for wait in chain.from_iterable(self._waits.values()):
                wait.announced_at = None  # what was notified before was missed
                wait.alarm.ring()
        try:
            for note in connection.notifies():
                with self._lock:
                    for wait in self._waits.get(note.payload, ()):
                        wait.alarm.ring()
        finally:
            with self._lock:
                self._connection = None


def _backoff() -> Iterator[float]:
    return chain((0.1, 0.5, 2.0, 5.0), repeat(LONGEST_BACKOFF))

"""Blocking work in a thread of its own, which a stop of the server ends."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

import psycopg

CANCEL_SECONDS = 2.0
STOP_SECONDS = 10.0
"""After this time a stop no longer waits for a thread. The thread ends with its process."""


class StoppedError(Exception):
    """The server of the page was stopped while the work ran."""

    def __init__(self) -> None:
        super().__init__("the server of the web page was stopped")


class StoppableThread:
    """A thread that runs `work`, whose argument is this object."""

    def __init__(self, name: str, work: Callable[["StoppableThread"], None]) -> None:
        self._stopping = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._thread = threading.Thread(target=work, args=(self,), name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Return whether the work goes on."""
        return self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        """Return whether the work is to end."""
        return self._stopping.is_set()

    def check(self) -> None:
        """Raise StoppedError if the work is to end. The work calls it between its steps."""
        if self.is_stopping:
            raise StoppedError

    @contextmanager
    def cancellable(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """Within the block, `stop` cancels the statement of this connection. Raises StoppedError.

        A cancellation may arrive late, so no other statement on it may be worth keeping.
        """
        self._connection = connection
        self.check()
        try:
            yield
        finally:
            self._connection = None

    async def stop(self) -> None:
        """End the work, and return once it has ended, or after STOP_SECONDS."""
        self._stopping.set()
        until = monotonic() + STOP_SECONDS
        while self.is_alive and monotonic() < until:
            # Again and again, because the work may be between two statements.
            await asyncio.to_thread(self._cancel)
            await asyncio.to_thread(self._thread.join, 0.1)

    def _cancel(self) -> None:
        connection = self._connection
        if connection is not None:
            with suppress(psycopg.Error, OSError):
                connection.cancel_safe(timeout=CANCEL_SECONDS)

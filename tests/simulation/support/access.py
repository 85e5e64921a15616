"""Where the engine gets its connections from: stands for `cronledger.ledger.access.Access`."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
from psycopg_pool import PoolTimeout

from cronledger.ledger.identity import ExpectedLedger
from cronledger.settings import Settings
from tests.simulation.support.effects import EffectConnection
from tests.simulation.support.loop import Process
from tests.simulation.support.network import Connection

if TYPE_CHECKING:
    from tests.simulation.support.cluster import Cluster

# Names of arguments are those of psycopg and its pool.


class Listener:
    """A connection that listens: what others notify reaches it after a while, or never."""

    def __init__(self, cluster: "Cluster", process: Process) -> None:
        self._cluster = cluster
        self.process = process
        self._notes: deque[str] = deque()
        self._event = asyncio.Event()
        self.closed = False

    async def execute(self, statement: object, values: object = None) -> None:
        if self not in self._cluster.listeners:  # its settings come before LISTEN
            self._cluster.listeners.append(self)

    def notify(self, payload: str) -> None:
        if not self.closed:
            self._notes.append(payload)
            self._event.set()

    def break_off(self) -> None:
        self.closed = True
        self._event.set()

    async def notifies(
        self,
        timeout: float,  # noqa: ASYNC109
        stop_after: int,
    ) -> AsyncIterator[psycopg.Notify]:
        if not self._notes:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._event.wait()
        self._event.clear()
        if self.closed:
            raise psycopg.OperationalError("the connection is lost")
        while self._notes:
            yield psycopg.Notify("cronledger", self._notes.popleft(), 1)

    async def close(self) -> None:
        self.closed = True


class Pool:
    """Connections of one process; one that broke is replaced by a new one."""

    def __init__(
        self,
        cluster: "Cluster",
        process: Process,
        size: int,
        patience: float,
        expected: ExpectedLedger | None = None,
    ) -> None:
        self._cluster = cluster
        self._expected = expected
        self._process = process
        self._room = asyncio.Semaphore(size)
        self._patience = patience
        self._idle: list[Connection] = []
        self._closed = False

    async def open(self) -> None:
        return None

    async def wait(self, timeout: float) -> None:  # noqa: ASYNC109
        if not await self._cluster.reachable(timeout):
            raise PoolTimeout("the database does not answer")

    async def close(self, timeout: float) -> None:  # noqa: ASYNC109
        self._closed = True
        for connection in self._idle:
            await connection.close()

    @contextlib.asynccontextmanager
    async def connection(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> AsyncIterator[Connection]:
        patience = self._patience if timeout is None else timeout
        try:
            async with asyncio.timeout(patience):
                await self._room.acquire()
        except TimeoutError as error:
            raise PoolTimeout(f"no connection within {patience} s") from error
        try:
            connection = await self._get(patience)
            connection.expected = self._expected
            try:
                yield connection
            finally:
                if connection.session.in_transaction or connection.waits:
                    await connection.close()  # what was cut off
                if not connection.closed:
                    self._idle.append(connection)
        finally:
            self._room.release()

    async def _get(self, patience: float) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        if self._closed or not await self._cluster.reachable(patience):
            raise PoolTimeout(f"no connection within {patience} s")
        return self._cluster.connect(self._process, "pool")


class Access:
    """Stands for `cronledger.ledger.access.Access`."""

    def __init__(self, cluster: "Cluster", process: Process, expected: ExpectedLedger) -> None:
        self._cluster = cluster
        self._process = process
        self.expected = expected
        self.url = cluster.database.url
        self.tcp_user_timeout = timedelta(seconds=10)
        self.lock_timeout = timedelta(seconds=5)

    def for_listening(self, settings: Settings) -> "Access | None":
        return None if settings.pgbouncer else self

    def pool(self, name: str, size: int) -> Pool:
        return Pool(self._cluster, self._process, size, 10.0, self.expected)

    async def connect_async(
        self, name: str, *, role_settings: bool = False
    ) -> Connection | Listener:
        if not await self._cluster.reachable(5.0):
            raise psycopg.OperationalError("connection refused")
        if name == "cronledger listen":
            return Listener(self._cluster, self._process)
        made = EffectConnection(self._cluster, self._process, name)
        made.expected = self.expected
        self._cluster.keep(made)
        return made

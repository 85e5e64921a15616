"""LISTEN on a connection of its own: triggers, resumes and edits wake the dispatcher at once.

Without it polling suffices; a pooler in transaction mode cannot carry it.
"""

import asyncio
from collections.abc import Callable

import psycopg
import structlog
from psycopg import sql

from cronledger.ledger.database import Access

log = structlog.get_logger(__name__)


class Waker:
    """`step` waits for one notification of the schema's channel and calls `woken` with its
    payload.
    """

    PATIENCE = 30.0

    def __init__(self, access: Access, schema: str, woken: Callable[[str], None]) -> None:
        self._access = access
        self._schema = schema
        self._woken = woken
        self._connection: psycopg.AsyncConnection[tuple[object, ...]] | None = None

    async def step(self) -> float:
        """Answers 0: it has done its own waiting. Raises psycopg.Error when the connection is
        lost.
        """
        if self._connection is None or self._connection.closed:
            self._connection = await self._access.connect_async("cronledger listen")
            # A process that stands still, or whose loop is blocked, reads no notifications. Once
            # they fill the socket, the server's process would hang in its write for as long, and
            # with it the queue of notifications and every DROP DATABASE on that server.
            patience = round(self._access.tcp_user_timeout.total_seconds() * 1000)
            await self._connection.execute(
                "SELECT set_config('tcp_user_timeout', %s, false)", [str(patience)]
            )
            await self._connection.execute(
                sql.SQL("LISTEN {}").format(sql.Identifier(self._schema))
            )
            # What was notified while nobody listened is looked for once.
            self._woken("connected")
        async for note in self._connection.notifies(timeout=self.PATIENCE, stop_after=1):
            self._woken(note.payload)
        await asyncio.sleep(0)
        return 0.0

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

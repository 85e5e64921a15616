"""The listener: LISTENs on its own connection, so that new work wakes the dispatcher at once.

Without it, the dispatcher polls. A pooler in transaction mode does not support LISTEN.
"""

import asyncio
from contextlib import suppress
from time import monotonic

import psycopg
from psycopg import sql

from cronledger.engine.event import Event
from cronledger.engine.log_throttle import LogThrottle, reason
from cronledger.ledger.access import Access
from cronledger.ledger.schemas import internal
from cronledger.ledger.session_settings import limit_unread
from cronledger.logs.loggers import get_logger

log = get_logger(__name__)

BACKOFF = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0)


class Listener:
    """Each `step` waits for one notification of the schema.

    Events: `notified`, its payload, or `connected` when LISTEN starts; `lost`, the connection is
    lost, and the next steps connect again. `failing`: the error of the last attempt to connect, or
    None. `failing_since`: the monotonic instant of the first failure, or None. `errors`: all
    failures since the start.
    """

    PATIENCE = 30.0

    def __init__(self, access: Access, schema: str) -> None:
        self._access = access
        self._schema = schema
        self.notified = Event[[str]]()
        self.lost = Event[[]]()
        self._connection: psycopg.AsyncConnection[tuple[object, ...]] | None = None
        self._lines = LogThrottle()
        self._logged = False
        self.failing_since: float | None = None
        self.failing: str | None = None
        self.failures = 0
        self.errors = 0

    @property
    def listening(self) -> bool:
        """Return whether notifications arrive. Any thread may read this."""
        return self._connection is not None

    async def step(self) -> float:
        """Wait for a notification, or connect. Return the seconds until the next step.

        A connection that is lost or refused is reported here and raises nothing, because the
        connections of the other steps may work.
        """
        try:
            if self._connection is None:
                await self._connect()
            assert self._connection is not None
            async for note in self._connection.notifies(timeout=self.PATIENCE, stop_after=1):
                self.notified(note.payload)
        except (psycopg.Error, OSError) as error:
            return await self._failed(reason(error))
        await asyncio.sleep(0)
        return 0.0

    async def _connect(self) -> None:
        connection = await self._access.connect_async("cronledger listen")
        try:
            await connection.execute(limit_unread(self._access.tcp_user_timeout))
            schema = sql.Identifier(self._schema)
            if self._access.expected is not None:  # the same DSN as that of the steps
                query = sql.SQL("SELECT {}.require_ledger(%s)").format(
                    sql.Identifier(internal(self._schema))
                )
                await connection.execute(query, [self._access.expected.id])
            await connection.execute(sql.SQL("LISTEN {}").format(schema))
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        self._restored()
        # Notifications may have been missed, so the subscribers check once for everything.
        self.notified("connected")

    def _restored(self) -> None:
        if self.failing_since is not None and self._logged:
            log.info("listen_restored", outage_s=round(monotonic() - self.failing_since, 1))
        self.failing, self.failing_since, self.failures, self._logged = None, None, 0, False

    async def _failed(self, why: str) -> float:
        delay = BACKOFF[min(self.failures, len(BACKOFF) - 1)]
        self.failures += 1
        self.errors += 1
        self.failing = why
        if self.failing_since is None:
            self.failing_since = monotonic()
        if self._lines.due(why):
            self._logged = True
            outage_s = round(monotonic() - self.failing_since, 1)
            log.warning("listen_failed", error=why, outage_s=outage_s)
        if self._connection is not None:
            await self.close()
            self.lost()
        return delay

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                await connection.close()

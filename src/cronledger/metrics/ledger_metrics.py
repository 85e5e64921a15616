"""Metrics of the whole ledger in the formats of Prometheus, read at most every FRESH_SECONDS."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from time import monotonic
from typing import Any

import psycopg
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from psycopg import AsyncConnection

from cronledger.ledger.connections import shutdown_socket
from cronledger.ledger.database_errors import explained
from cronledger.logs.loggers import get_logger
from cronledger.metrics.formats import format_for, labelled
from cronledger.metrics.ledger_families import families
from cronledger.metrics.ledger_snapshot import Snapshot, read_snapshot
from cronledger.rules.remedies import Surface

log = get_logger(__name__)

FRESH_SECONDS = 15.0
"""Scrapes within this time get the same values, so two Prometheus servers cost one read."""
RETRY_SECONDS = 1.0
"""Time between two attempts to read a ledger that could not be read."""
PATIENCE = 8.0
"""The longest time in seconds for one read. Prometheus waits for 10 s by default."""

Lend = Callable[[], AbstractAsyncContextManager[AsyncConnection[Any]]]


class LedgerMetrics:
    """Reads snapshots on connections of `lend`. All tasks of one event loop may share it."""

    def __init__(
        self, lend: Lend, schema: str, *, job_limit: int, ledger: str | None = None
    ) -> None:
        """`ledger`: the label of this name of all metrics, unless it is None."""
        self._lend = lend
        self._schema = schema
        self._job_limit = job_limit
        self._ledger = ledger
        self._lock = asyncio.Lock()
        self._next_at = float("-inf")
        self._last: Snapshot | None = None
        self._body: tuple[bytes, str] | None = None
        self._failed = False

    async def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics in the format that the header Accept prefers, and their content type.

        If the ledger cannot be read, these are only `cronledger_up 0` and the version.
        """
        encode, content_type = format_for(accept)
        async with self._lock:
            if monotonic() >= self._next_at:
                await self._refresh()
                self._body = None
            if self._body is None or self._body[1] != content_type:
                # In a thread, because thousands of series take a tenth of a second.
                text = await asyncio.to_thread(encode, _Collected(self._last, self._ledger))
                self._body = text, content_type
            return self._body

    async def _refresh(self) -> None:
        try:
            self._last = await self.read()
        except (psycopg.Error, OSError, TimeoutError) as error:
            self._last = None
            if not self._failed:
                log.warning("metrics_read_failed", error=_text(error))
        self._failed = self._last is None
        self._next_at = monotonic() + (RETRY_SECONDS if self._failed else FRESH_SECONDS)

    async def read(self) -> Snapshot:
        """Read a snapshot now. Raises psycopg.Error or OSError, or TimeoutError after PATIENCE."""
        loop, passed = asyncio.get_running_loop(), asyncio.Event()
        deadline = loop.time() + PATIENCE

        def end(connection: AsyncConnection[Any]) -> None:
            passed.set()
            shutdown_socket(connection)

        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout_at(deadline):
                    connection = await stack.enter_async_context(self._lend())
                # A cancelled statement would wait for the server, which may hang, again.
                stack.callback(loop.call_at(deadline, end, connection).cancel)
                return await read_snapshot(connection, self._schema, job_limit=self._job_limit)
        except (TimeoutError, psycopg.OperationalError) as error:
            if not isinstance(error, TimeoutError) and not passed.is_set():
                raise
            text = f"the ledger could not be read within {PATIENCE:.0f} s"
            raise TimeoutError(text) from None


def encoded(snapshot: Snapshot, ledger: str | None = None) -> bytes:
    """Return the metrics of a snapshot in the text format of Prometheus."""
    return generate_latest(_Collected(snapshot, ledger))


class _Collected(Collector):
    def __init__(self, snapshot: Snapshot | None, ledger: str | None) -> None:
        self._snapshot = snapshot
        self._ledger = ledger

    def collect(self) -> Iterable[Metric]:
        return labelled(families(self._snapshot), self._ledger)


def _text(error: Exception) -> str:
    return str(explained(error, Surface.COMMAND) if isinstance(error, psycopg.Error) else error)

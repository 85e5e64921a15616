"""Sends pings: requests that report the start and the end of an attempt to a check outside."""

import asyncio
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING

from cronledger.engine.late import Late
from cronledger.engine.monitoring.ping import Ping
from cronledger.extras import require_http
from cronledger.logs.loggers import get_logger
from cronledger.rules.problems import ConfigurationError

if TYPE_CHECKING:
    from cronledger.engine.monitoring.ping_requests import PingRequests

log = get_logger(__name__)

MOST_WAITING = 100
"""Pings of one URL that wait. Further ones are dropped."""


class Pings:
    """Sends the pings of each URL in their order, and those of different URLs side by side.

    A ping that is not accepted after three tries is given up. `allow_private`: addresses that are
    not public are permitted.
    """

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._requests = Late(self._make_requests)
        self._waiting: dict[str, deque[Ping]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def put(self, ping: Ping) -> None:
        """Send a ping soon. It is dropped, and a warning logged, if too many of its URL wait."""
        waiting = self._waiting.setdefault(ping.url, deque())
        if self._closed or len(waiting) >= MOST_WAITING:
            log.warning("ping_dropped", **ping.log_fields)
            return
        waiting.append(ping)
        if ping.url not in self._tasks:
            # In a context of its own: log lines of later pings must not name this execution.
            task = asyncio.create_task(
                self._send_all(ping.url), name="cronledger pings", context=Context()
            )
            self._tasks[ping.url] = task

    async def close(self, seconds: float) -> None:
        """Wait so long for pings that were put, and drop the others."""
        self._closed = True
        if tasks := list(self._tasks.values()):
            _, unsent = await asyncio.wait(tasks, timeout=seconds)
            for task in unsent:
                task.cancel()
            await asyncio.gather(*unsent, return_exceptions=True)
        for ping in (ping for waiting in self._waiting.values() for ping in waiting):
            log.warning("ping_dropped", **ping.log_fields)
        self._waiting.clear()
        if self._requests.made is not None:
            await self._requests.made.close()

    def _make_requests(self) -> "PingRequests":
        require_http("ping")
        from cronledger.engine.monitoring.ping_requests import PingRequests  # noqa: PLC0415 - aiohttp

        return PingRequests(allow_private=self._allow_private)

    async def _send_all(self, url: str) -> None:
        waiting = self._waiting[url]
        try:
            try:
                requests = await self._requests.get()
            except (ImportError, ConfigurationError) as error:  # perhaps during an upgrade
                for ping in self._waiting.pop(url):
                    log.warning("ping_failed", **ping.log_fields, error=str(error))
                return
            while waiting:
                await requests.send(waiting[0])
                waiting.popleft()
            del self._waiting[url]
        finally:
            del self._tasks[url]

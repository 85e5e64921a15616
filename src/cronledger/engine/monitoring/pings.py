"""Sends pings: requests that report the start and the end of an attempt to a check outside."""

import asyncio
from collections import deque
from contextvars import Context
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

import aiohttp
from yarl import URL

from cronledger.engine.addresses import AddressRefusedError, Resolver, check_literal
from cronledger.logs.loggers import get_logger

log = get_logger(__name__)

MOST_WAITING = 100
"""Pings of one URL that wait. Further ones are dropped."""
MOST_AT_ONCE = 20
REQUEST_SECONDS = 10.0
WAITS = (0.0, 1.0, 5.0)
"""The seconds before each try to send a ping."""


class Ping(NamedTuple):
    """A request to a check.

    `url`: that of the check. `signal`: what is appended to its path, such as `start`; empty: a
    success. `run`: the id of the attempt, which the start and the end have in common; None: no
    attempt. `body`: what the service shows.
    """

    url: str
    signal: str = ""
    run: UUID | None = None
    body: str = ""

    @property
    def address(self) -> URL:
        """The address of the request. It keeps the query of `url`."""
        check = URL(self.url)
        path = check / self.signal if self.signal else check
        run = [] if self.run is None else [("rid", str(self.run))]
        return path.with_query([*check.query.items(), *run])


class Pings:
    """Sends the pings of each URL in their order, and those of different URLs side by side.

    A ping that is not accepted after three tries is given up. `allow_private`: addresses that are
    not public are permitted.
    """

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._waiting: dict[str, deque[Ping]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None
        # Not the limit of the session, in which waiting would count towards REQUEST_SECONDS.
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._closed = False

    def put(self, ping: Ping) -> None:
        """Send a ping soon. It is dropped, and a warning logged, if too many of its URL wait."""
        waiting = self._waiting.setdefault(ping.url, deque())
        if self._closed or len(waiting) >= MOST_WAITING:
            log.warning("ping_dropped", host=_host(ping), signal=ping.signal or "success")
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
            log.warning("ping_dropped", host=_host(ping), signal=ping.signal or "success")
        self._waiting.clear()
        if self._session is not None:
            await self._session.close()

    async def _send_all(self, url: str) -> None:
        waiting = self._waiting[url]
        try:
            while waiting:
                await self._send(waiting[0])
                waiting.popleft()
            del self._waiting[url]
        finally:
            del self._tasks[url]

    async def _send(self, ping: Ping) -> None:
        """Send a ping, at most as often as there are `WAITS`. Raises nothing."""
        error = ""
        for wait in WAITS:
            await asyncio.sleep(wait)
            try:
                async with self._turns, asyncio.timeout(REQUEST_SECONDS):
                    status = await self._request(ping)
            except AddressRefusedError:
                error = "its address is not public; set ping_allow_private to permit it"
                break
            except (aiohttp.ClientError, OSError, ValueError) as raised:
                # Without its text, which may contain the URL, and so the key of the check.
                error = type(raised).__name__
                continue
            if 200 <= status <= 299:
                return
            error = f"status {status}"
            if status < 500 and status != 429:
                break  # the service knows the request, and refuses it
        log.warning(
            "ping_failed", host=_host(ping), signal=ping.signal or "success", error=error
        )  # fmt: skip

    async def _request(self, ping: Ping) -> int:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=Resolver(self._allow_private), limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "cronledger"},
            )
        address = ping.address
        check_literal(address, self._allow_private)
        async with self._session.post(
            address, data=ping.body.encode(), allow_redirects=False
        ) as response:
            return response.status


def _host(ping: Ping) -> str:
    """Return the host of a check. Its path is a key, which is not logged. Raises nothing.

    `URL` refuses hosts that a job may have, such as one with an empty label.
    """
    try:
        return urlsplit(ping.url).hostname or ""
    except ValueError:
        return ""

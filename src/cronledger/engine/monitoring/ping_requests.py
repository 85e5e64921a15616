"""The requests of pings."""

import asyncio

import aiohttp
from yarl import URL

from cronledger.engine.addresses import AddressRefusedError, Resolver, check_literal
from cronledger.engine.monitoring.ping import Ping
from cronledger.logs.loggers import get_logger

log = get_logger(__name__)

MOST_AT_ONCE = 20
REQUEST_SECONDS = 10.0
WAITS = (0.0, 1.0, 5.0)
"""The seconds before each try to send a ping."""


class PingRequests:
    """Sends pings. `allow_private`: addresses that are not public are permitted."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._session: aiohttp.ClientSession | None = None
        # Not the limit of the session, in which waiting would count towards REQUEST_SECONDS.
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def send(self, ping: Ping) -> None:
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
        log.warning("ping_failed", **ping.log_fields, error=error)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _request(self, ping: Ping) -> int:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=Resolver(self._allow_private), limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "cronledger"},
            )
        address = address_of(ping)
        check_literal(address, self._allow_private)
        async with self._session.post(
            address, data=ping.body.encode(), allow_redirects=False
        ) as response:
            return response.status


def address_of(ping: Ping) -> URL:
    """Return the address of the request, which keeps the query of `url`."""
    check = URL(ping.url)
    path = check / ping.signal if ping.signal else check
    run = [] if ping.run is None else [("rid", str(ping.run))]
    return path.with_query([*check.query.items(), *run])

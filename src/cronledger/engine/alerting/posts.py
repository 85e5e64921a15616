"""The requests of webhooks and of Slack."""

from collections.abc import Mapping

import aiohttp
from yarl import URL

from cronledger.engine.addresses import Resolver, check_literal


async def post(
    url: str, body: bytes, headers: Mapping[str, str], allow_private: bool
) -> tuple[int, str | None]:
    """Send a request, and return the status and the reason of its response.

    Raises AddressRefusedError, or the error of the connection.
    """
    target = URL(url)
    check_literal(target, allow_private)
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=Resolver(allow_private), limit=1),
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as session,
        session.post(target, data=body, headers=headers, allow_redirects=False) as response,
    ):
        return response.status, response.reason

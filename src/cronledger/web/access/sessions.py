"""Sessions of people who signed in with a token. They are in the ledger.

So all processes of the page know them, also after a restart, and a sign-out ends them for all. The
browser has a random id, and the ledger its SHA-256: a dump of the ledger signs nobody in. Sessions
are read from the primary, because a standby may not have received a new one yet.
"""

from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from secrets import token_urlsafe
from time import monotonic
from typing import Any

import psycopg

from cronledger.ledger import queries
from cronledger.ledger.access import Access
from cronledger.ledger.senders import AsyncConnections

NAME = "cronledger web sessions"
LIFETIME = timedelta(days=30)
MOST_CONNECTIONS = 2
FRESH_SECONDS = 5.0
"""A session is read again after this time, so that the sign-out in another process counts here."""
MOST_KNOWN = 1_000


class Sessions:
    """Begins, reads and ends sessions. `token`: the SHA-256 of a token, as in the settings."""

    def __init__(self, access: Access, schema: str) -> None:
        self._connections = AsyncConnections(access, NAME, MOST_CONNECTIONS)
        self._schema = schema
        self._known: dict[str, tuple[str, float]] = {}
        """By session: its token, and when that was read."""

    async def begin(self, token: str) -> str:
        """Return the id of a new session. Raises psycopg.Error."""
        session = token_urlsafe(32)
        await self._call(
            "begin_page_session", session=hashed(session), token=hashed(token), lifetime=LIFETIME
        )
        return session

    async def token_of(self, session: str) -> str | None:
        """Return the SHA-256 of the token of a session; None: the session has ended.

        If the database is away, a session that this process knows continues, because the page then
        shows its last data. Raises psycopg.Error for any other session.
        """
        key = hashed(session)
        known = self._known.get(key)
        if known is not None and monotonic() - known[1] < FRESH_SECONDS:
            return known[0]
        try:
            token: str | None = await self._call("page_session", session=key)
        except psycopg.OperationalError:
            if known is None:
                raise
            self._known[key] = known[0], monotonic()  # not each request waits for the database
            return known[0]
        self._known.pop(key, None)
        if token is not None:
            self._known[key] = token, monotonic()
            while len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
        return token

    async def end(self, session: str) -> None:
        """End a session. Raises psycopg.Error, and then the session may continue."""
        key = hashed(session)
        await self._call("end_page_session", session=key)
        self._known.pop(key, None)

    async def _call(self, function: str, **params: object) -> Any:
        call = queries.function_call(function, tuple(params), self._schema)
        async with (
            self._connections.lend() as connection,
            self._connections.begin(connection, 1),
        ):
            row = await (await connection.execute(call, params)).fetchone()
        assert row is not None
        return row[0]

    async def close(self) -> None:
        """Close the connections."""
        with suppress(psycopg.Error):
            await self._connections.close()


def hashed(text: str) -> str:
    """Return the SHA-256 of `text` in hexadecimal."""
    return sha256(text.encode("utf-8", "replace")).hexdigest()

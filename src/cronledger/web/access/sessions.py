"""Sessions of people who signed in with a token. They are in the ledger.

So all processes of the page know them, also after a restart, and a sign-out ends them for all. The
browser has a random id, and the ledger its SHA-256: a dump of the ledger signs nobody in. Sessions
are read from the primary, because a standby may not have received a new one yet.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
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
PATIENCE = 2.0
"""The longest time in seconds that a page with several ledgers waits for one of them."""


class Sessions:
    """Begins, reads and ends sessions. `token`: the SHA-256 of a token, as in the settings.

    A page with several ledgers keeps a session in each of them, so that people sign in and stay
    signed in while a database is away. `ledgers`: how to reach each, and its schema.
    """

    def __init__(self, ledgers: Sequence[tuple[Access, str]]) -> None:
        self._ledgers = [
            (AsyncConnections(access, NAME, MOST_CONNECTIONS), schema) for access, schema in ledgers
        ]
        self._known: dict[str, tuple[str, float]] = {}
        """By session: its token, and when that was read."""

    async def begin(self, token: str) -> str:
        """Return the id of a new session. Raises psycopg.Error if no ledger has stored it."""
        session = token_urlsafe(32)
        results = await self._ask(
            "begin_page_session", session=hashed(session), token=hashed(token), lifetime=LIFETIME
        )
        _raise(results, unless_any=True)
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
            results = await self._ask("page_session", _is_token, session=key)
            _raise(results, unless_any=True)
        except psycopg.OperationalError:
            if known is None:
                raise
            self._known[key] = known[0], monotonic()  # not each request waits for the database
            return known[0]
        token: str | None = next(filter(_is_token, results), None)
        self._known.pop(key, None)
        if token is not None:
            self._known[key] = token, monotonic()
            while len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
        return token

    async def end(self, session: str) -> None:
        """End a session. Raises psycopg.Error, and then the session may continue.

        Each ledger has to confirm it, because one that is away may have the session.
        """
        key = hashed(session)
        results = await self._ask("end_page_session", session=key)
        self._known.pop(key, None)
        _raise(results, unless_any=False)

    async def _ask(
        self, function: str, is_enough: Callable[[Any], bool] = lambda _: False, **params: object
    ) -> list[Any]:
        """Return what the ledgers return, or the errors that they raise, until one is enough.

        Of several ledgers, one that does not respond within PATIENCE counts as away.
        """
        asked = {
            asyncio.ensure_future(self._call(ledger, function, params)) for ledger in self._ledgers
        }
        patience = None if len(asked) == 1 else PATIENCE
        results: list[Any] = []
        try:
            async with asyncio.timeout(patience):
                while asked and not any(map(is_enough, results)):
                    done, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                    results += [one.exception() or one.result() for one in done]
        except TimeoutError:
            away = psycopg.OperationalError(f"a database has not responded for {PATIENCE:.0f} s")
            results += [away] * len(asked)
        finally:
            for one in asked:  # its connection may hang, so nobody waits for its end
                one.add_done_callback(lambda task: task.cancelled() or task.exception())
                one.cancel()
        return results

    async def _call(
        self, ledger: tuple[AsyncConnections, str], function: str, params: Mapping[str, object]
    ) -> Any:
        connections, schema = ledger
        call = queries.function_call(function, tuple(params), schema)
        async with connections.lend() as connection, connections.begin(connection, 1):
            row = await (await connection.execute(call, params)).fetchone()
        assert row is not None
        return row[0]

    async def close(self) -> None:
        """Close the connections."""
        for connections, _ in self._ledgers:
            with suppress(psycopg.Error):
                await connections.close()


def _raise(results: Sequence[Any], *, unless_any: bool) -> None:
    """Raise the first error; `unless_any`: only if all results are errors."""
    errors = [one for one in results if isinstance(one, BaseException)]
    if errors and not (unless_any and len(errors) < len(results)):
        raise errors[0]


def _is_token(result: object) -> bool:
    return isinstance(result, str)


def hashed(text: str) -> str:
    """Return the SHA-256 of `text` in hexadecimal."""
    return sha256(text.encode("utf-8", "replace")).hexdigest()

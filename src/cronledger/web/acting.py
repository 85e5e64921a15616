"""Acting for the page: the SQL functions, called by the person who signed in."""

from collections.abc import Sequence
from typing import TypeVar

from cronledger.ledger.access import Access
from cronledger.ledger.calls import Call
from cronledger.ledger.senders import AsyncSender
from cronledger.rules.remedies import Surface
from cronledger.tracing.interface import Tracing
from cronledger.web.access.identity import Identity, RefusedRequestError

T = TypeVar("T")

NAME = "cronledger web acts"
MOST_CONNECTIONS = 4


class Actor:
    """Sends the calls of operators, those of one request in a transaction."""

    def __init__(self, access: Access, schema: str, tracing: Tracing | None) -> None:
        self._sender = AsyncSender.connecting(
            access, schema, None, tracing, name=NAME, most=MOST_CONNECTIONS
        )
        self._sender.surface = Surface.PAGE

    async def call(self, call: Call[T], by: Identity) -> T:
        """Return the value of a call that `by` requests.

        Raises RefusedRequestError unless `by` is an operator, LedgerError if the ledger refuses,
        which is recorded in the audit trail, and psycopg.Error.
        """
        return (await self.call_all([call], by))[0]

    async def call_all(self, calls: Sequence[Call[T]], by: Identity) -> list[T]:
        """Return the values of calls, of which all are done, or none."""
        if not by.is_operator:
            raise RefusedRequestError(f"{by.name} may read this page, but may not act on it.")
        return await self._sender.send_all(calls, actor=by.name)

    async def call_own(self, call: Call[T], by: Identity) -> T:
        """Return the value of a call that changes only what belongs to `by`, who may be a viewer.

        Raises LedgerError if the ledger refuses, and psycopg.Error.
        """
        (value,) = await self._sender.send_all([call], actor=by.name)
        return value

    async def close(self) -> None:
        """Close the connections. A later `call` raises RuntimeError."""
        await self._sender.close()

"""Acting for the page: the SQL functions, called by the person who signed in."""

from datetime import timedelta

from psycopg import AsyncCursor
from psycopg.rows import dict_row

from cronledger.ledger import queries
from cronledger.ledger.access import Access
from cronledger.ledger.refusals import refusals
from cronledger.ledger.reports import Row
from cronledger.ledger.senders import AsyncConnections
from cronledger.ledger.transactions import transaction_async
from cronledger.web.access.identity import Identity, RefusedRequestError
from cronledger.web.reading import PACKAGE

NAME = "cronledger web acts"
MOST_CONNECTIONS = 4


class Actor:
    """Calls the statements of `web/sql` that an operator may call, each in a transaction."""

    def __init__(self, access: Access, schema: str, lock_timeout: timedelta) -> None:
        self._connections = AsyncConnections(access, NAME, MOST_CONNECTIONS)
        self._schema = schema
        self._lock_timeout = lock_timeout

    async def call(self, statement: str, by: Identity, **params: object) -> list[Row]:
        """Return the rows of `sql/STATEMENT.sql`. Its parameter `requested_by` is the name of `by`.

        Raises RefusedRequestError unless `by` is an operator, LedgerError if the ledger refuses,
        and psycopg.Error.
        """
        if not by.is_operator:
            raise RefusedRequestError(f"{by.name} may read this page, and may not act on it.")
        text = queries.text(statement, self._schema, PACKAGE)
        async with self._connections.lend() as connection:
            with refusals():
                async with (
                    transaction_async(connection, self._lock_timeout),
                    AsyncCursor(connection, row_factory=dict_row) as cursor,
                ):
                    await cursor.execute(
                        text.encode(), {**params, "requested_by": by.name}, binary=True
                    )
                    return await cursor.fetchall()

    async def close(self) -> None:
        """Close the connections. A later `call` raises RuntimeError."""
        await self._connections.close()

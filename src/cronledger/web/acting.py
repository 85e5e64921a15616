"""Acting for the page: the SQL functions, called by the person who signed in."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import dict_row

from cronledger.ledger import audit_trail, queries
from cronledger.ledger.access import Access
from cronledger.ledger.refusals import LedgerError, refusals
from cronledger.ledger.reports import Row
from cronledger.ledger.senders import AsyncConnections
from cronledger.ledger.transactions import transaction_async
from cronledger.web.access.identity import Identity, RefusedRequestError
from cronledger.web.reading import PACKAGE

NAME = "cronledger web acts"
MOST_CONNECTIONS = 4
RECORD = "call_record_refusals"
_FUNCTIONS = {"call_pause_jobs": "pause", "call_resume_jobs": "resume"}
_ARGUMENTS = {"id": "execution_id", "limit": "max_running"}
"""The names that operator functions and their arguments have in statements of the page."""


class Actor:
    """Calls the statements of `web/sql` that an operator may call, each in a transaction."""

    def __init__(self, access: Access, schema: str, lock_timeout: timedelta) -> None:
        self._connections = AsyncConnections(access, NAME, MOST_CONNECTIONS)
        self._schema = schema
        self._lock_timeout = lock_timeout

    async def call(self, statement: str, by: Identity, **params: object) -> list[Row]:
        """Return the rows of `sql/STATEMENT.sql`. Its parameter `requested_by` is the name of `by`.

        Raises RefusedRequestError unless `by` is an operator, LedgerError if the ledger refuses,
        which is recorded in the audit trail, and psycopg.Error.
        """
        if not by.is_operator:
            raise RefusedRequestError(f"{by.name} may read this page, and may not act on it.")
        text = queries.text(statement, self._schema, PACKAGE)
        async with self._connections.lend() as connection:
            try:
                with refusals():
                    return await self._rows(connection, text, {**params, "requested_by": by.name})
            except LedgerError as error:
                if (refused := _refused(statement, by, params, error.message)) is not None:
                    # The refusal is the error of the page, also if it cannot be recorded.
                    with suppress(psycopg.Error):
                        text = queries.text(RECORD, self._schema, PACKAGE)
                        await self._rows(connection, text, refused)
                raise

    async def _rows(
        self, connection: AsyncConnection[Any], text: str, params: Mapping[str, object]
    ) -> list[Row]:
        async with (
            transaction_async(connection, self._lock_timeout),
            AsyncCursor(connection, row_factory=dict_row) as cursor,
        ):
            await cursor.execute(text.encode(), params, binary=True)
            return await cursor.fetchall()

    async def close(self) -> None:
        """Close the connections. A later `call` raises RuntimeError."""
        await self._connections.close()


def _refused(
    statement: str, by: Identity, params: Mapping[str, object], message: str
) -> dict[str, Any] | None:
    """Return the parameters of RECORD: one row, or one for each of several jobs.

    None: the statement calls no operator function.
    """
    function = _FUNCTIONS.get(statement, statement.removeprefix("call_"))
    if function not in audit_trail.OPERATOR_FUNCTIONS:
        return None
    given = {_ARGUMENTS.get(name, name): value for name, value in params.items()}
    names = given.pop("names", None)
    found = [
        audit_trail.refusal(function, given | more, message, by.name)
        for more in ([{"job": name} for name in names] if isinstance(names, list) else [{}])
    ]
    return {**found[0], "arguments": [one["arguments"] for one in found]}

"""Transactions of commands and of steps: their settings, their limits, and the expected ledger."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import AsyncConnection

from cronledger.ledger.connections import StepConnection, Transaction
from cronledger.ledger.schemas import internal
from cronledger.ledger.session_settings import (
    HUNG_SECONDS,
    SET_COMMAND,
    SET_DURABLE,
    SET_STEP,
    SILENT_CLIENT_SECONDS,
    set_parameters,
)

_HAS_TRANSACTION_TIMEOUT = 170000


@contextmanager
def transaction(
    connection: psycopg.Connection[Any], lock_timeout: timedelta = timedelta(0)
) -> Iterator[None]:
    """Run a transaction of a command. `lock_timeout` zero: no limit for lock waits."""
    with connection.transaction():
        set_command_limits(connection, SILENT_CLIENT_SECONDS, lock_timeout.total_seconds())
        yield


@asynccontextmanager
async def transaction_async(
    connection: AsyncConnection[Any], lock_timeout: timedelta = timedelta(0)
) -> AsyncIterator[None]:
    """Do the same for an event loop."""
    async with connection.transaction():
        statement, values = _command_limits(
            connection, SILENT_CLIENT_SECONDS, lock_timeout.total_seconds()
        )
        await connection.execute(statement, values)
        yield


def set_command_limits(
    connection: psycopg.Connection[Any], silence: float, lock_timeout: float = 0.0
) -> None:
    """Limit this transaction of a command.

    It ends if its client is silent for `silence` seconds, and soon after its host is lost. Its
    values and its duration do not depend on the settings of the role, the database and the server.
    """
    connection.execute(*_command_limits(connection, silence, lock_timeout))


def _command_limits(
    connection: psycopg.Connection[Any] | AsyncConnection[Any], silence: float, lock_timeout: float
) -> tuple[bytes, list[str]]:
    """Return the statement that sets these limits, and its parameters."""
    limits = {
        "idle_in_transaction_session_timeout": _milliseconds(silence),
        "lock_timeout": _milliseconds(lock_timeout),
        **_transaction_timeout(connection, 0.0),
    }
    statement = f"SELECT {SET_COMMAND}, {set_parameters(limits)}, {SET_DURABLE}"
    return statement.encode(), list(limits.values())


@asynccontextmanager
async def step_transaction(
    connection: StepConnection, silence: float | None = None
) -> AsyncIterator[Transaction]:
    """Run a transaction in few round trips, with pinned planning.

    A wait for a lock ends after the `lock_timeout` of the connection. The transaction ends if its
    client is silent for `silence` seconds (None: SILENT_CLIENT_SECONDS).

    The settings are part of the transaction instead of the start of the connection, because only
    those hold behind PgBouncer in transaction mode. The tables that the transaction writes make its
    COMMIT durable (functions/transactions/commit_durably.sql).

    Raises psycopg.Error (CL006), and does nothing, if the connection leads to another ledger than
    the expected one. The DSN of a live replica may do so at any time.
    """
    expected = connection.expected
    limits = {
        "lock_timeout": _milliseconds(connection.lock_timeout.total_seconds()),
        "idle_in_transaction_session_timeout": _milliseconds(silence or SILENT_CLIENT_SECONDS),
        # A server that waits for the rest of a round trip does not count the client as idle.
        **_transaction_timeout(connection, HUNG_SECONDS),
    }
    async with connection.begin() as begun:
        await connection.execute(
            f"SELECT {SET_STEP}, {set_parameters(limits)}"
            + ("" if expected is None else f", {internal(expected.schema)}.require_ledger(%s)"),
            [*limits.values(), *([] if expected is None else [expected.id])],
        )
        yield begun


def _transaction_timeout(
    connection: psycopg.Connection[Any] | AsyncConnection[Any], seconds: float
) -> dict[str, str]:
    """Return the limit of the whole transaction, which PostgreSQL before 17 does not have."""
    if connection.info.server_version < _HAS_TRANSACTION_TIMEOUT:
        return {}
    return {"transaction_timeout": _milliseconds(seconds)}


def _milliseconds(seconds: float) -> str:
    return str(round(1000 * seconds))

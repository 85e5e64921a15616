"""Connections: how they are opened, what they are set to, and which errors pass by themselves."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection, conninfo, errors
from psycopg_pool import AsyncConnectionPool

AsyncPool = AsyncConnectionPool[AsyncConnection[tuple[Any, ...]]]

# A network partition is noticed in seconds, not in the two hours of the kernel's defaults.
NETWORK: Mapping[str, str] = {
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}

AWAY = (psycopg.OperationalError, psycopg.InterfaceError)
"""The database did not answer, or the connection is gone."""

PASSING = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable)
"""Another transaction was in the way; the step is tried again as a whole."""

POISON = (errors.DataError, errors.IntegrityError)
"""SQLSTATE classes 22 and 23: a value of one row, not the database, is at fault."""


def is_away(error: BaseException) -> bool:
    """Whether `error` says that the database is unreachable rather than that a statement is bad."""
    return isinstance(error, AWAY) and not isinstance(error, (*PASSING, errors.QueryCanceled))


def parameters(url: str, name: str = "cronledger", **overrides: str) -> dict[str, Any]:
    """Connection parameters of a DSN: what it says itself wins over the defaults."""
    return {**NETWORK, "application_name": name, **conninfo.conninfo_to_dict(url), **overrides}


def connect(url: str, name: str = "cronledger") -> psycopg.Connection:
    """A blocking connection in autocommit mode, for commands and migrations."""
    return psycopg.connect(**parameters(url, name), autocommit=True)


async def connect_async(
    url: str, name: str = "cronledger", *, prepare: bool = True, **overrides: str
) -> AsyncConnection[tuple[Any, ...]]:
    """A connection in autocommit mode; `prepare` false: no server-side prepares (PgBouncer)."""
    return await AsyncConnection.connect(
        **parameters(url, name, **overrides),
        autocommit=True,
        prepare_threshold=5 if prepare else None,
    )


def make_pool(
    url: str, name: str = "cronledger", *, size: int = 3, prepare: bool = True
) -> AsyncPool:
    """A closed pool of `size` connections in autocommit mode; open it in the loop that uses it."""
    return AsyncConnectionPool(
        kwargs={
            **parameters(url, name),
            "autocommit": True,
            "prepare_threshold": 5 if prepare else None,
        },
        min_size=size,
        max_size=size,
        timeout=10,
        open=False,
        name=name,
        check=AsyncConnectionPool.check_connection,
    )


@asynccontextmanager
async def step_transaction(
    connection: AsyncConnection[tuple[Any, ...]], lock_timeout_ms: int = 5000
) -> AsyncIterator[None]:
    """A transaction in pipeline mode with jit off and a bounded wait for locks.

    SET LOCAL rides in the pipeline instead of the connection's start, because behind PgBouncer in
    transaction mode nothing else holds.
    """
    async with connection.pipeline(), connection.transaction():
        await connection.execute(
            "SELECT set_config('jit', 'off', true), set_config('lock_timeout', %s, true)",
            [str(lock_timeout_ms)],
        )
        yield

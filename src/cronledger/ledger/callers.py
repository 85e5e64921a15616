"""The psycopg connection behind a connection or session of SQLAlchemy or Django.

A call on it is part of the transaction of its caller, who commits or rolls back. The libraries are
recognized by their attributes, because cronledger does not depend on them.
"""

from collections.abc import Awaitable
from inspect import iscoroutinefunction
from typing import Any, Protocol

import psycopg

_USE = (
    "pass a Client, a connection of psycopg 3, or a connection or session of SQLAlchemy or Django"
    " that uses psycopg 3"
)


class SqlalchemyConnection(Protocol):
    """`sqlalchemy.Connection`."""

    @property
    def connection(self) -> Any: ...
    def in_transaction(self) -> bool: ...
    def begin(self) -> object: ...
    def rollback(self) -> None: ...


class SqlalchemySession(Protocol):
    """`sqlalchemy.orm.Session` and `scoped_session`."""

    def connection(self) -> SqlalchemyConnection: ...


class DjangoConnection(Protocol):
    """`django.db.connection` and the values of `django.db.connections`."""

    def ensure_connection(self) -> None: ...
    def cursor(self) -> Any: ...


class SqlalchemyAsyncConnection(Protocol):
    """`sqlalchemy.ext.asyncio.AsyncConnection`."""

    async def get_raw_connection(self) -> Any: ...
    def in_transaction(self) -> bool: ...
    def begin(self) -> Awaitable[object]: ...


class SqlalchemyAsyncSession(Protocol):
    """`sqlalchemy.ext.asyncio.AsyncSession`."""

    async def connection(self) -> SqlalchemyAsyncConnection: ...


SyncCaller = psycopg.Connection[Any] | SqlalchemyConnection | SqlalchemySession | DjangoConnection
AsyncCaller = psycopg.AsyncConnection[Any] | SqlalchemyAsyncConnection | SqlalchemyAsyncSession


def psycopg_connection(caller: object) -> psycopg.Connection[Any]:
    """Return the connection on which the transaction of `caller` runs, or begins.

    Raises TypeError if `caller` is something else, is asynchronous, or has another driver.
    """
    found: Any = caller
    if _is_sync_session(found):
        found = found.connection()
    if isinstance(found, psycopg.Connection):
        return found
    if hasattr(found, "ensure_connection"):
        # Its own way to a connection, which also replaces, or reports to it, one that has ended.
        with found.cursor() as cursor:
            return _checked(caller, getattr(cursor, "connection", None))
    if hasattr(found, "exec_driver_sql") and not hasattr(found, "get_raw_connection"):
        driver = _checked(caller, found.connection.driver_connection)
        # As its own statements do. Otherwise its commit() would not commit ours.
        if not found.in_transaction():
            found.begin()
        return driver
    return _checked(caller, found)


async def psycopg_async_connection(caller: object) -> psycopg.AsyncConnection[Any]:
    """Return the connection on which the transaction of `caller` runs, or begins.

    Raises TypeError if `caller` is something else, is synchronous, or has another driver.
    """
    found: Any = caller
    if _is_async_session(found):
        found = await found.connection()
    if hasattr(found, "get_raw_connection"):
        raw = await found.get_raw_connection()
        driver = _checked_async(caller, raw.driver_connection)
        if not found.in_transaction():
            await found.begin()
        return driver
    return _checked_async(caller, found)


def _is_sync_session(caller: Any) -> bool:
    method = getattr(caller, "connection", None) if hasattr(caller, "get_bind") else None
    return callable(method) and not iscoroutinefunction(method)


def _is_async_session(caller: Any) -> bool:
    return hasattr(caller, "get_bind") and iscoroutinefunction(getattr(caller, "connection", None))


def _checked(caller: object, driver: object) -> psycopg.Connection[Any]:
    if isinstance(driver, psycopg.Connection):
        return driver
    # The clients and sessions of an event loop have an asynchronous `close`.
    is_async = any(iscoroutinefunction(getattr(one, "close", None)) for one in (caller, driver))
    advice = "use the async methods, or AsyncClient" if is_async else _USE
    raise TypeError(f"{_named(caller, driver)} cannot be used here; {advice}{_of_pool(caller)}")


def _checked_async(caller: object, driver: object) -> psycopg.AsyncConnection[Any]:
    if isinstance(driver, psycopg.AsyncConnection):
        return driver
    raise TypeError(
        f"{_named(caller, driver)} cannot be awaited; pass an AsyncClient, an AsyncConnection of"
        " psycopg 3, or an AsyncConnection or AsyncSession of SQLAlchemy that uses psycopg 3; or"
        f" use the methods that are not async{_of_pool(caller)}"
    )


def _of_pool(caller: object) -> str:
    """Return the remedy for a pool, which has the connection that it is taken for."""
    return "; of a pool, pass a connection: pool.connection()" if _is_pool(caller) else ""


def _is_pool(caller: object) -> bool:
    return type(caller).__module__.partition(".")[0] == "psycopg_pool"


def _named(caller: object, driver: object) -> str:
    shown = _type_name(caller)
    return shown if driver is caller else f"{shown} with the driver {_type_name(driver)}"


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"

"""Django's database connections around handlers, as around requests."""

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections

from cronledger.declaring.app import Context
from cronledger.declaring.middleware import Middleware


def _close_around(ctx: Context, call_next: Callable[[], Any]) -> Any:
    """Close the connections of this thread that are unusable or too old, before and afterwards."""
    close_old_connections()
    try:
        return call_next()
    finally:
        close_old_connections()


async def _close_around_async(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
    """Give the ORM calls of the handler a thread of their own, as Django does for a request.

    The thread ends with the handler, so that all its connections are closed.
    """
    async with ThreadSensitiveContext():
        try:
            return await call_next()
        finally:
            await sync_to_async(connections.close_all)()


CLOSE_OLD_CONNECTIONS = Middleware(sync=_close_around, asynchronous=_close_around_async)
"""The outermost middleware of every job of a Django project."""

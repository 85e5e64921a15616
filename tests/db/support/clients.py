"""Both clients, each with connections of its own and on the connection of a caller."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from cronledger.client import AsyncClient, Client

KINDS = ("client", "async client", "connection", "async connection")
Ask = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def asked(kind: str, url: str, actor: str | None = None) -> AsyncIterator[Ask]:
    """Yield `ask(method, …)`, which returns what this method of a client returns."""
    async with _opened(kind, url, actor) as client:

        async def ask(method: str, *arguments: Any, **options: Any) -> Any:
            found = getattr(client, method)(*arguments, **options)
            return await found if inspect.isawaitable(found) else found

        yield ask


@asynccontextmanager
async def _opened(kind: str, url: str, actor: str | None) -> AsyncIterator[Client | AsyncClient]:
    match kind:
        case "client":
            with Client(url, actor=actor) as client:
                yield client
        case "async client":
            async with AsyncClient(url, actor=actor) as async_client:
                yield async_client
        case "connection":
            with psycopg.connect(url, autocommit=True) as connection:
                yield Client(connection=connection, actor=actor)
        case _:
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
                yield AsyncClient(connection=conn, actor=actor)

"""Uses of declared functions, for mypy. Each line with an `ignore` is wrong, and mypy says so."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from cronledger import App, AsyncClient, Client, Context


@asynccontextmanager
async def vans(app: App) -> AsyncIterator["Van"]:
    yield Van()


app = App("typed", lifespan=vans)


@dataclass
class Order:
    number: int


@app.job(max_attempts=2)
async def ship(ctx: Context, payload: Order, pace: int = 1) -> str:
    return f"{ctx.job} {payload.number} {pace}"


@app.job()
def total(payload: list[int]) -> int:
    return sum(payload)


@app.job()
def optional(ctx: Context, other: int = 2, *, payload: int = 5) -> int:
    return payload + other


class Van: ...


# A parameter that receives a resource, after the payload.
@app.job()
async def deliver(ctx: Context, payload: Order, van: Van, number: int = 2) -> str:
    return f"{payload.number} {van} {number}"


@app.job()
def charge(payload: Order, *, van: Van) -> None:
    print(payload, van)


@app.job()
def measure(ctx: Context, van: Van) -> None:
    print(ctx, van)


@app.job("@daily")
def tidy() -> None: ...


@app.job()
def plain(ctx: Context) -> None: ...


def sync_uses(
    client: Client, conn: psycopg.Connection[dict[str, Any]], sa: Connection, session: Session
) -> None:
    made: int | None = ship.enqueue(Order(1), conn=client, key="k", scope="a", watermark=3)
    ids: list[int] = total.enqueue_many([[1], [2]], conn=conn, keys=["a", None])
    covered: list[int | None] = total.enqueue_many([[1]], conn=conn, watermarks=[3])
    triggered: int = optional.trigger(3, conn=sa, force=True)
    optional.enqueue(conn=session)
    tidy.trigger(conn=client)
    plain.enqueue({"any": ["json"]}, conn=session)
    client.wait(ship.enqueue(Order(1), conn=client, due_at=datetime(2030, 1, 1, tzinfo=UTC)))
    deliver.enqueue(Order(1), conn=client)
    charge.enqueue_many([Order(1)], conn=client)
    measure.enqueue({"any": ["json"]}, conn=client)
    print(made, ids, covered, triggered)

    client.wait(ship.enqueue(Order(1), conn=client, watermark=3))  # type: ignore[arg-type]
    client.wait(client.enqueue("ship", watermark=3))  # type: ignore[arg-type]
    ship.enqueue(Order(1), conn=client, watermark=3, due_at=datetime(2030, 1, 1, tzinfo=UTC))  # type: ignore[call-overload]
    deliver.enqueue(3, conn=client)  # type: ignore[call-overload]
    deliver.enqueue_many([Order(1), 3], conn=client)  # type: ignore[list-item]
    charge.trigger("one", conn=client)  # type: ignore[arg-type]
    ship.enqueue(3, conn=client)  # type: ignore[call-overload]
    ship.enqueue({"number": 1}, conn=client)  # type: ignore[call-overload]
    ship.enqueue(Order(1))  # type: ignore[call-overload]
    ship.enqueue(Order(1), conn=client, kye="k")  # type: ignore[call-overload]
    ship.enqueue(Order(1), conn="postgresql:///shop")  # type: ignore[call-overload]
    ship.enqueue_many([Order(1), 2], conn=client)  # type: ignore[list-item]
    ship.trigger("one", conn=client)  # type: ignore[arg-type]
    total.enqueue(["one"], conn=client)  # type: ignore[list-item]
    total.enqueue_many([1, 2], conn=client)  # type: ignore[list-item]
    optional.enqueue("three", conn=client)  # type: ignore[call-overload]
    text: str = total.enqueue([1], conn=client)  # type: ignore[assignment]
    print(text)


def registered(sessions: scoped_session[Session]) -> None:
    ship.enqueue(Order(1), conn=sessions)


async def async_uses(
    client: AsyncClient,
    conn: psycopg.AsyncConnection[Any],
    sa: AsyncConnection,
    session: AsyncSession,
    blocking: Client,
) -> None:
    made: int | None = await ship.enqueue_async(Order(1), conn=client)
    ids: list[int] = await total.enqueue_many_async([[1]], conn=conn)
    triggered: int = await optional.trigger_async(conn=sa)
    await tidy.enqueue_async(conn=session)
    print(made, ids, triggered)

    await ship.enqueue_async(3, conn=client)  # type: ignore[call-overload]
    await ship.enqueue_async(Order(1), conn=blocking)  # type: ignore[arg-type]
    ship.enqueue(Order(1), conn=client)  # type: ignore[arg-type]
    ship.enqueue(Order(1), conn=session)  # type: ignore[call-overload]
    ship.enqueue_async(Order(1), conn=session)  # type: ignore[unused-coroutine]


async def the_function_is_callable_as_before(ctx: Context) -> None:
    text: str = await ship(ctx, Order(1), pace=2)
    named: str = await ship(ctx=ctx, payload=Order(1))
    number: int = total([1]) + optional(ctx, 3, payload=4)
    handler: Callable[[Context, Order], Awaitable[str]] = ship
    print(text, named, number, handler, ship.__name__)

    await ship(ctx, 3)  # type: ignore[arg-type]
    total(payload=["one"])  # type: ignore[list-item]
    optional(ctx, other="x")  # type: ignore[arg-type]
    wrong: Callable[[Context, int], Awaitable[str]] = ship  # type: ignore[assignment]
    print(wrong)

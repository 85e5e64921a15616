"""Uses of declared functions, for type checkers, which reject each line with an `ignore`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from cronledger import App, AsyncClient, Client, Context
from cronledger.client import Execution


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


MONDAY = datetime(2030, 1, 7, tzinfo=UTC)


# A parameter that receives a resource, after the payload.
@app.job()
async def deliver(ctx: Context, payload: Order, van: Van, number: int = 2) -> str:
    return f"{payload.number} {van} {number}"


@app.job()
def charge(payload: Order, *, van: Van) -> None:
    print(payload, van)


@app.job("@daily")
def tidy() -> None: ...


def region(payload: Order, dry: bool = False) -> str:
    return f"{payload.number} {dry}"


class Synchronize:
    def __call__(self, ctx: Context, payload: int) -> str:
        return f"{ctx.job} {payload}"


# One function as several jobs, and callables that are not functions.
eu = app.job("@every 90s", name="sync-eu", payload=Order(1))(region)
again = app.job(name="again")(eu)
instance = app.job(name="instance")(Synchronize())
bound_twice = app.job(name="partial")(partial(region, dry=True))


@app.job("@daily", name="outer")
@app.job("@hourly", name="inner")
async def stacked(payload: int = 3) -> int:
    return payload


def sync_uses(
    client: Client, conn: psycopg.Connection[dict[str, Any]], sa: Connection, session: Session
) -> None:
    made: int | None = ship.enqueue(Order(1), conn=client, key="k", scope="a", watermark=3)
    ids: list[int] = total.enqueue_many([[1], [2]], conn=conn, keys=["a", None])
    covered: list[int | None] = total.enqueue_many([[1]], conn=conn, watermarks=[3])
    triggered: int = optional.trigger(3, conn=sa, force=True)
    optional.enqueue(conn=session)
    tidy.trigger(conn=client)
    client.wait(ship.enqueue(Order(1), conn=client, due_at=MONDAY))
    charge.enqueue_many([Order(1)], conn=client)
    print(made, ids, covered, triggered)

    client.wait(ship.enqueue(Order(1), conn=client, watermark=3))  # type: ignore[arg-type]
    ship.enqueue(Order(1), conn=client, watermark=3, due_at=MONDAY)  # type: ignore[call-overload]
    deliver.enqueue(3, conn=client)  # type: ignore[call-overload]
    charge.trigger("one", conn=client)  # type: ignore[arg-type]
    ship.enqueue({"number": 1}, conn=client)  # type: ignore[call-overload]
    ship.enqueue(Order(1))  # type: ignore[call-overload]
    ship.enqueue(Order(1), conn=client, kye="k")  # type: ignore[call-overload]
    ship.enqueue(Order(1), conn="postgresql:///shop")  # type: ignore[call-overload]
    total.enqueue_many([1, 2], conn=client)  # type: ignore[list-item]
    text: str = total.enqueue([1], conn=client)  # type: ignore[assignment]
    print(text)


def client_uses(client: Client) -> None:
    made: int = client.enqueue("ship", {"number": 1}, key="k", scope="a")
    covered: list[int | None] = client.enqueue_many("ship", [1], watermarks=[3])
    ended: bool = client.wait(client.trigger("ship"), timeout=5).ended
    found: list[Execution] = client.executions("ship", limit=3)
    verdicts: list[str] = [one.verdict for one in client.why("ship", MONDAY)]
    print(made, covered, ended, found, verdicts)

    client.wait(client.enqueue("ship", watermark=3))  # type: ignore[arg-type]
    client.pause("ship", unitl="2h")  # type: ignore[call-arg]
    client.next("ship", after="now")  # type: ignore[arg-type]
    wrong: int = client.retry(made, force=True)  # type: ignore[assignment]
    print(wrong)


async def async_client_uses(client: AsyncClient) -> None:
    made: int = await client.enqueue("ship", {"number": 1})
    ended: bool = (await client.wait(made, 5)).ended
    print(ended)

    await client.wait("one")  # type: ignore[arg-type]
    wrong: bool = client.resume("ship")  # type: ignore[assignment]
    print(wrong)


def registered(sessions: scoped_session[Session]) -> None:
    ship.enqueue(Order(1), conn=sessions)


def handles(client: Client, ctx: Context) -> None:
    eu.enqueue(Order(1), conn=client)
    instance.enqueue(3, conn=client)
    bound_twice.enqueue(Order(1), conn=client)
    text: str = eu(Order(1), dry=True) + again(payload=Order(1)) + instance(ctx, 3)
    print(text, eu.__name__)

    again.enqueue_many([3], conn=client)  # type: ignore[list-item]
    instance.trigger("three", conn=client)  # type: ignore[arg-type]
    stacked.trigger("three", conn=client)  # type: ignore[arg-type]
    eu(3)  # type: ignore[arg-type]
    region.enqueue(Order(1), conn=client)  # type: ignore[attr-defined]


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


async def the_function_is_callable_as_before(ctx: Context) -> None:
    text: str = await ship(ctx, Order(1), pace=2)
    named: str = await ship(ctx=ctx, payload=Order(1))
    number: int = total([1]) + optional(ctx, 3, payload=4)
    handler: Callable[[Context, Order], Awaitable[str]] = ship
    print(text, named, number, handler)

    await ship(ctx, 3)  # type: ignore[arg-type]
    optional(ctx, other="x")  # type: ignore[arg-type]
    wrong: Callable[[Context, int], Awaitable[str]] = ship  # type: ignore[assignment]
    print(wrong)

"""F38: work is enqueued in the transaction of the caller, through the library of the caller."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy
from django.db import transaction
from psycopg import IsolationLevel
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from cronledger import App, AsyncClient, Client, Context
from cronledger.client import PayloadInvalidError
from cronledger.sources.apply import apply
from tests.db.support.frameworks import async_engine, django_connection, sqlalchemy_engine
from tests.db.support.rows import Db, value

app = App("shop")
EVERY = "SELECT count(*) FROM cronledger.executions"


class Order(BaseModel):
    number: int


class Unsent(BaseModel):
    other: int = 1


@app.job()
def ship(ctx: Context, payload: Order) -> int:
    return payload.number


@app.job(payload={"number": 5}, scope_kind="tenant", scopes=["acme"])
def report(payload: Order) -> None: ...


@pytest.fixture
def shop(db: Db, database_url: str) -> Db:
    """The jobs above."""
    apply(database_url, list(app.jobs.values()), source="shop")
    return db


def enqueued(db: Db) -> list[Any]:
    found = db.execute("SELECT p.payload FROM cronledger.execution_payloads p ORDER BY p.id")
    return [row["payload"] for row in found]


# --- callers: a connection or session, and what commits and rolls back its work -----------------

Caller = tuple[Any, Callable[[], Any], Callable[[], Any]]


@contextmanager
def of_psycopg(url: str) -> Iterator[Caller]:
    with psycopg.connect(url) as connection:
        yield connection, connection.commit, connection.rollback


@contextmanager
def of_sqlalchemy(url: str) -> Iterator[Caller]:
    with sqlalchemy_engine(url) as engine, engine.connect() as connection:
        yield connection, connection.commit, connection.rollback


@contextmanager
def of_a_session(url: str) -> Iterator[Caller]:
    with sqlalchemy_engine(url) as engine, Session(engine) as session:
        yield session, session.commit, session.rollback


@contextmanager
def of_django(url: str) -> Iterator[Caller]:
    with django_connection(url) as connection:
        transaction.set_autocommit(False)
        yield connection, transaction.commit, transaction.rollback


SYNC = [of_psycopg, of_sqlalchemy, of_a_session, of_django]


@asynccontextmanager
async def of_async_psycopg(url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection, connection.commit, connection.rollback


@asynccontextmanager
async def of_async_sqlalchemy(url: str) -> AsyncIterator[Caller]:
    async with async_engine(url) as engine, engine.connect() as connection:
        yield connection, connection.commit, connection.rollback


@asynccontextmanager
async def of_async_session(url: str) -> AsyncIterator[Caller]:
    async with async_engine(url) as engine, AsyncSession(engine) as session:
        yield session, session.commit, session.rollback


ASYNC = [of_async_psycopg, of_async_sqlalchemy, of_async_session]


# --- the transaction ----------------------------------------------------------------------------


def test_a_commit_enqueues_and_a_rollback_leaves_nothing(shop: Db, database_url: str) -> None:
    for caller in SYNC:
        shop.execute("DELETE FROM cronledger.executions")
        with caller(database_url) as (conn, commit, rollback):
            ship.enqueue(Order(number=1), conn=conn)
            ship.enqueue_many([Order(number=2), Order(number=3)], conn=conn)
            ship.trigger(Order(number=4), conn=conn)
            assert enqueued(shop) == [], caller
            rollback()
            assert ship.enqueue(Order(number=5), conn=conn) is not None
            assert enqueued(shop) == [], caller
            commit()
            assert enqueued(shop) == [{"number": 5}], caller
            Client(connection=conn).enqueue("ship", {"number": 6})
            rollback()
        assert enqueued(shop) == [{"number": 5}], caller


async def test_the_same_holds_on_an_event_loop(shop: Db, database_url: str) -> None:
    for caller in ASYNC:
        shop.execute("DELETE FROM cronledger.executions")
        async with caller(database_url) as (conn, commit, rollback):
            await ship.enqueue_async(Order(number=1), conn=conn)
            await ship.enqueue_many_async([Order(number=2), Order(number=3)], conn=conn)
            await ship.trigger_async(Order(number=4), conn=conn)
            await rollback()
            assert await ship.enqueue_async(Order(number=5), conn=conn) is not None
            assert enqueued(shop) == [], caller
            await commit()
            assert enqueued(shop) == [{"number": 5}], caller
            await AsyncClient(connection=conn).enqueue("ship", {"number": 6})
            await rollback()
        assert enqueued(shop) == [{"number": 5}], caller


def test_it_works_under_any_isolation_level(shop: Db, database_url: str) -> None:
    for level in IsolationLevel:
        shop.execute("DELETE FROM cronledger.executions")
        with psycopg.connect(database_url) as connection:
            connection.isolation_level = level
            connection.execute("SELECT")  # the snapshot is older than the work
            made = ship.enqueue(Order(number=1), conn=connection)
            ship.enqueue_many([Order(number=2)], conn=connection)
            ship.enqueue(Order(number=3), key="k", conn=connection)
            report.trigger(scope="acme", conn=connection)
            assert Client(connection=connection).execution(made or 0).status == "PENDING"
        assert [one["number"] for one in enqueued(shop)] == [1, 2, 3, 5], level


# --- what is refused ----------------------------------------------------------------------------


def test_a_payload_that_the_handler_would_refuse_is_not_sent(shop: Db, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        wrong: list[Any] = [{"number": "x"}, {}, Unsent(), object()]
        for payload in wrong:
            for call in (ship.enqueue, ship.trigger):
                with pytest.raises(PayloadInvalidError, match="the payload"):
                    call(payload, conn=connection)
            with pytest.raises(PayloadInvalidError, match=r"payloads\[1\]"):
                ship.enqueue_many([Order(number=1), payload], conn=connection)
        with pytest.raises(
            PayloadInvalidError,
            match="the handler of job 'ship' would refuse the payload:\npayload: Input should be",
        ):
            ship.enqueue(conn=connection)
        ship.enqueue(key="k", conn=connection)  # it may merge into one that has a payload
        report.enqueue(scope="acme", conn=connection)  # the payload of the job fits
        right: Any = {"number": "7"}
        ship.enqueue(right, conn=connection)
    assert enqueued(shop) == [None, {"number": 5}, {"number": "7"}]


@pytest.mark.parametrize("level", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ])
def test_a_message_in_an_open_transaction_delays_nobody(
    shop: Db, database_url: str, level: IsolationLevel
) -> None:
    """Other callers and replicas go on with its scope, which a lock of the schedule would stop."""
    options = "-c lock_timeout=20ms"
    with (
        psycopg.connect(database_url) as open_, psycopg.connect(database_url, options=options) as b
    ):  # fmt: skip
        open_.isolation_level = b.isolation_level = level
        first = ship.enqueue(Order(number=1), conn=open_)
        many = ship.enqueue_many([Order(number=2), Order(number=3)], conn=open_)
        second = ship.enqueue(Order(number=4), conn=b)
        ship.enqueue(Order(number=5), key="k", conn=b)
        b.commit()
        # As a claim does.
        lock = "SELECT FROM cronledger.schedules WHERE job_name = 'ship' FOR NO KEY UPDATE NOWAIT"
        shop.execute(lock)
        assert value(shop, EVERY) == 2
        open_.commit()
    stored = "SELECT id, payload ->> 'number' AS number FROM cronledger.execution_payloads"
    numbers = {row["id"]: int(row["number"]) for row in shop.execute(stored)}
    assert [numbers[made] for made in (first, *many, second)] == [1, 2, 3, 4]
    assert len(numbers) == 5


async def test_what_is_no_connection_of_psycopg_is_named(database_url: str) -> None:
    order = Order(number=1)
    other = sqlalchemy.create_engine("sqlite://")
    of_sqlite = r"sqlalchemy\..* with the driver sqlite3.Connection cannot be used here;"
    none = "cannot be used here; pass a Client, a connection of"
    asynchronous = "use the async methods, or AsyncClient"
    blocking = "cannot be awaited; pass an AsyncClient, an Async"
    pool = r"of a pool, pass a connection: pool\.connection\(\)"
    wrong: Any
    with psycopg.connect(database_url) as sync, other.connect() as sqlite, Session(other) as unit:
        async with (
            async_engine(database_url) as engine, AsyncSession(engine) as session,
            AsyncClient(database_url) as client,
        ):  # fmt: skip
            for wrong, said in (
                (sqlite, of_sqlite), (unit, of_sqlite), (None, none), (session, asynchronous),
                (client, asynchronous), (ConnectionPool(database_url, open=False), pool),
            ):  # fmt: skip
                with pytest.raises(TypeError, match=said):
                    ship.enqueue(order, conn=wrong)
        assert not sqlite.in_transaction()
        for wrong, said in (
            (sync, blocking), (Client(database_url), blocking),
            (AsyncConnectionPool(database_url, open=False), pool),
        ):  # fmt: skip
            with pytest.raises(TypeError, match=said):
                await ship.enqueue_async(order, conn=wrong)
    other.dispose()


def test_each_job_of_a_function_has_a_handle_of_its_own(shop: Db, database_url: str) -> None:
    def sync(payload: str) -> None: ...

    other = App("other")
    eu, us = (other.job(name=f"sync-{region}", payload=region)(sync) for region in ("eu", "us"))
    apply(database_url, list(other.jobs.values()), source="other")
    with Client(database_url) as client:
        eu.enqueue("one", conn=client)
        us.enqueue_many(["two"], conn=client)
        us.trigger(conn=client)
    jobs = shop.execute("SELECT job_name FROM cronledger.executions ORDER BY id")
    assert [row["job_name"] for row in jobs] == ["sync-eu", "sync-us", "sync-us"]
    assert enqueued(shop) == ["one", "two", "us"]

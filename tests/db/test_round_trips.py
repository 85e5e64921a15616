"""The connection of a step: what travels together, what is prepared, and what an error leaves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from cronledger.ledger.access import Access
from cronledger.ledger.connections import AsyncPool, StepConnection
from cronledger.ledger.transactions import step_transaction
from tests.db.support.engine import Ledger
from tests.waiting import eventually

PREPARED = "SELECT name FROM pg_prepared_statements ORDER BY prepare_time"


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[AsyncPool]:
    async with Access(database_url).pool("steps", 1) as made:
        yield made


async def values(c: StepConnection, query: str, *params: Any) -> list[Any]:
    """The first column of what the statement returns. It is not prepared."""
    cursor = await c.execute(query, params, prepare=False)
    return [row[0] for row in await cursor.fetchall()]


async def test_parameters_are_written_as_for_psycopg(pool: AsyncPool) -> None:
    cases: list[tuple[str, Any, tuple[Any, ...]]] = [
        ("SELECT 7 % 4, '%(a)s'", None, (3, "%(a)s")),
        ("SELECT 7 %% %s, %s::text, '%%'", [4, "b"], (3, "b", "%")),
        ("SELECT %(b)s::text, %(a)s, %(b)s::text", {"a": 1, "b": "ü"}, ("ü", 1, "ü")),
        ("SELECT %s::int, %s::text[]", [None, ["x", None]], (None, ["x", None])),
    ]
    async with pool.connection() as c:
        for query, params, row in cases:
            for _ in range(3):
                assert await (await c.execute(query, params)).fetchone() == row


@pytest.mark.parametrize("direct", [True, False])
async def test_statements_are_prepared_for_their_second_execution_unless_through_a_pooler(
    database_url: str, direct: bool
) -> None:
    async with Access(database_url, direct=direct).pool("steps", 1) as pool, pool.connection() as c:
        assert await values(c, PREPARED) == []
        for _ in range(2):
            async with step_transaction(c):
                for number in range(3):
                    await c.execute("SELECT %s::int", [number])
        # this statement, and the settings
        assert len(await values(c, PREPARED)) == (2 if direct else 0)


@pytest.mark.parametrize("in_step", [True, False])
async def test_an_error_ends_its_round_trip_and_discards_prepared_statements(
    ledger: Ledger, pool: AsyncPool, in_step: bool
) -> None:
    """A plan whose result has changed meanwhile is among them."""
    ledger.values("CREATE TABLE public.changing (a int)")
    ledger.values("INSERT INTO public.changing VALUES (1)")
    query = "SELECT * FROM public.changing"

    async def read(c: StepConnection) -> list[Any]:
        if not in_step:
            return await (await c.execute(query)).fetchall()
        async with step_transaction(c):
            first = await c.execute("SELECT 1")
            cursor = await c.execute(query)
            last = await c.execute("SELECT 2")
            try:
                return await cursor.fetchall()
            except psycopg.Error:
                assert await first.fetchall() == [(1,)]
                with pytest.raises(psycopg.ProgrammingError):
                    await last.fetchall()
                raise

    async with pool.connection() as c:
        for _ in range(3):
            assert await read(c) == [(1,)]
        before = await values(c, PREPARED)
        ledger.values("ALTER TABLE public.changing ADD COLUMN b int DEFAULT 2")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="cached plan"):
            await read(c)
        for _ in range(3):
            assert await read(c) == [(1, 2)]
        assert not set(before) & set(await values(c, PREPARED))


async def test_a_value_that_cannot_be_sent_and_an_error_leave_nothing(pool: AsyncPool) -> None:
    async with pool.connection() as c:
        with pytest.raises(UnicodeError):  # before anything is sent
            async with step_transaction(c):
                await c.execute("CREATE TABLE public.sent ()")
                await c.execute("SELECT %s::text", ["\ud800"])
        assert c.info.transaction_status is TransactionStatus.IDLE
        with pytest.raises(ZeroDivisionError):
            async with step_transaction(c):
                await c.execute("CREATE TABLE public.sent ()")
                await values(c, "SELECT 1")  # after a round trip
                raise ZeroDivisionError
        assert c.info.transaction_status is TransactionStatus.IDLE
        assert await values(c, "SELECT to_regclass('public.sent')") == [None]


@pytest.mark.parametrize("in_step", [True, False])
async def test_a_cancelled_round_trip_leaves_a_connection_that_can_be_used(
    ledger: Ledger, pool: AsyncPool, in_step: bool
) -> None:
    active = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND query ~ '^SELECT pg_sleep' AND state = 'active'"
    )

    async def sleeps() -> None:
        async with pool.connection() as c:
            if not in_step:
                await c.execute("SELECT pg_sleep(300)")
            async with step_transaction(c):
                await c.execute("LOCK TABLE cronledger.jobs")
                await (await c.execute("SELECT pg_sleep(300)")).fetchone()

    task = asyncio.create_task(sleeps())
    await eventually("it sleeps", lambda: ledger.values(active))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not ledger.values(active)
    async with pool.connection() as c, step_transaction(c):
        assert await values(c, "SELECT 1") == [1]


@pytest.mark.parametrize("failing", [0, 1, None])
async def test_two_transactions_of_a_round_trip_commit_one_after_the_other(
    ledger: Ledger, pool: AsyncPool, failing: int | None
) -> None:
    """The first one stands, whatever becomes of the second."""
    ledger.values("CREATE TABLE public.written (number int)")
    transactions = []
    async with pool.connection() as c:
        with pytest.raises(psycopg.errors.DivisionByZero) if failing is not None else nullcontext():
            async with c.round_trip():
                for number in range(2):
                    async with step_transaction(c) as transaction:
                        transactions.append(transaction)
                        await c.execute("INSERT INTO public.written VALUES (%s)", [number])
                        await c.execute("SELECT 1 / %s::int", [0 if number == failing else 1])
                    assert not transaction.committed
                assert ledger.values("SELECT count(*) FROM public.written") == [0]
        assert c.info.transaction_status is TransactionStatus.IDLE
    written = list(range(2 if failing is None else failing))
    assert ledger.values("SELECT number FROM public.written ORDER BY 1") == written
    assert [x.committed for x in transactions] == [number in written for number in range(2)]

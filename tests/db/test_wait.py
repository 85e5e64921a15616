"""F39: `wait` returns the end of an execution, and misses none."""

import asyncio
import threading
from datetime import timedelta

import psycopg
import pytest

from cronledger import AsyncClient, Client, Context
from cronledger.client import NotFoundError, Status
from cronledger.client.waiting import Patience
from tests.db.support import rows
from tests.db.support.clients import KINDS, asked
from tests.db.support.rows import Db
from tests.db.support.whole_replica import Whole

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_execution_that_ended_is_returned_at_once_and_no_other(
    kind: str, database_url: str, db: Db
) -> None:
    rows.job(db, "job", schedule=None)
    at = rows.now(db)
    statuses = ("SUCCESS", "FAILED", "CANCELLED")
    ended = [
        rows.execution(db, status, plan_time=at - n * MINUTE)["id"]
        for n, status in enumerate(statuses, 1)
    ]
    waiting = rows.execution(db, "PENDING", plan_time=at)["id"]
    retried = rows.execution(db, "FAILED", plan_time=at - 9 * MINUTE, next_attempt_at=at)["id"]
    said = f"execution {waiting} of job 'job' has not ended within 0.05 s: it is PENDING; it is not"
    async with asked(kind, database_url) as ask:
        assert [(await ask("wait", one, timeout=0)).status for one in ended] == [*statuses]
        with pytest.raises(TimeoutError, match=said):
            await ask("wait", waiting, timeout=0.05)
        with pytest.raises(TimeoutError, match="it is FAILED"):
            await ask("wait", retried, 0)
        with pytest.raises(NotFoundError, match="execution 99 does not exist\nHint: its partition"):
            await ask("wait", 99)


@pytest.mark.long
async def test_it_waits_for_a_replica_and_its_retries(whole: Whole) -> None:
    waited = threading.Event()

    def work(ctx: Context) -> int:
        assert waited.wait(60)
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return ctx.attempt

    whole.job(work, max_attempts=2, retry_backoff=["0s"])
    async with whole.replica(), AsyncClient(whole.url) as client:
        with Client(whole.url) as blocking:
            made = await client.trigger("work")
            ends = [
                asyncio.create_task(client.wait(made)),
                asyncio.create_task(asyncio.to_thread(blocking.wait, made)),
            ]
            with pytest.raises(TimeoutError):
                await client.wait(made, 0.01)
            waited.set()
            for ended in await asyncio.gather(*ends):
                assert (ended.status, ended.result, ended.attempt) == (Status.SUCCESS, 2, 2)
                assert ended.ended


def test_pauses_grow_with_the_time_that_was_waited(
    db: Db, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.job(db, "job", schedule=None)
    made = rows.execution(db, "PENDING", plan_time=rows.now(db))["id"]
    with Client(database_url) as client:
        found = client.execution(made)
    at = [100.0]
    monkeypatch.setattr("cronledger.client.waiting.time.monotonic", lambda: at[0])
    patience = Patience(60.0)
    pauses = []
    for waited in (0.0, 0.05, 2.0, 30.0, 59.5):
        at[0] = 100.0 + waited
        pauses.append(round(patience.pause(found), 6))
    assert pauses == [0.01, 0.01, 0.2, 1.0, 0.5]
    at[0] = 160.0
    with pytest.raises(TimeoutError, match="within 60 s"):
        patience.pause(found)


async def test_inside_a_transaction_it_is_refused(database_url: str, db: Db) -> None:
    rows.job(db, "job", schedule=None)
    with (
        psycopg.connect(database_url) as connection,
        pytest.raises(RuntimeError, match=r"inside a transaction, because what .*commit first"),
    ):
        Client(connection=connection).wait(1)
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as autocommit:
        client = AsyncClient(connection=autocommit)
        with pytest.raises(NotFoundError):
            await client.wait(1)
        async with autocommit.transaction():
            with pytest.raises(RuntimeError, match="inside a transaction"):
                await client.wait(1)

"""Who stands still in the middle of a transaction, for good or for a while, holds nobody up."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors

from cronledger import Context
from cronledger.ledger import database
from cronledger.ledger.database import Access, is_away, step_transaction, transaction
from cronledger.sources import apply as applying
from tests.db.engine import Ledger, Runner, eventually, runners
from tests.db.whole import Whole, until

PATIENCE = 0.2


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "STANDS_STILL_SECONDS", PATIENCE)


def stop_in_the_claim(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Its next claim stands still once it has locked its schedules, until the event is set."""
    go_on = asyncio.Event()
    read = runner.claimer._read

    async def stopped(*args: Any) -> Any:
        await go_on.wait()
        return await read(*args)

    monkeypatch.setattr(runner.claimer, "_read", stopped)
    return go_on


async def test_schedules_that_a_stopped_claim_has_locked_are_free_again(
    ledger: Ledger, database_url: str, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    ledger.job(schedule="* * * * *")
    ledger.clock.travel(by=timedelta(minutes=1))
    async with runners(database_url, {}, {}) as (stopped, other):
        go_on = stop_in_the_claim(stopped, monkeypatch)
        claim = asyncio.create_task(stopped.step())
        await eventually(lambda: bool(other_transactions(ledger)))
        await eventually(lambda: not other_transactions(ledger))
        (won,) = await other.step()
        go_on.set()
        with pytest.raises(psycopg.Error) as raised:
            await claim
        assert is_away(raised.value)
        assert await stopped.step() == []
        await other.finish(won)
    assert ledger.statuses() == ["SUCCESS"]
    assert ledger.accounted() == 1


def other_transactions(ledger: Ledger) -> list[Any]:
    return ledger.rows(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND state = 'idle in transaction'"
    )


async def test_a_step_that_stands_still_says_that_it_was_given_up(
    database_url: str, impatient: None
) -> None:
    pool = Access(database_url).pool("still", 1)
    await pool.open()
    try:
        with pytest.raises(psycopg.Error) as raised:
            async with pool.connection() as c, step_transaction(c):
                await (await c.execute("SELECT 1")).fetchone()
                await asyncio.sleep(2 * PATIENCE)
                await (await c.execute("SELECT 2")).fetchone()
        assert is_away(raised.value)
        async with pool.connection() as c, step_transaction(c):
            assert await (await c.execute("SELECT 3")).fetchone() == (3,)
        # Of the transaction, not of the connection: it may be a pooler's.
        async with pool.connection() as c:
            shown = await c.execute("SHOW idle_in_transaction_session_timeout")
            assert await shown.fetchone() == ("0",)
    finally:
        await pool.close()


@pytest.mark.parametrize("where", ["sources.apply", "ledger.migrate"])
def test_commands_hold_their_locks_in_such_a_transaction(where: str) -> None:
    from cronledger.ledger import migrate

    module = {"sources.apply": applying, "ledger.migrate": migrate}[where]
    assert module.transaction is transaction


def test_a_command_that_stands_still_lets_go(database_url: str, impatient: None) -> None:
    with (
        Access(database_url).connect() as stopped,
        Access(database_url).connect() as other,
        pytest.raises(errors.IdleInTransactionSessionTimeout),
        transaction(stopped),
    ):
        stopped.execute("LOCK TABLE cronledger.jobs IN ACCESS EXCLUSIVE MODE")
        other.execute("ALTER TABLE cronledger.jobs SET (fillfactor = 90)")
        stopped.execute("SELECT 1")


async def test_f30_a_row_is_not_kept_for_longer_than_its_handler_may_run(
    database_url: str,
) -> None:
    whole = Whole(database_url)
    inside, go_on = threading.Event(), threading.Event()

    def stands_still(ctx: Context) -> None:
        with ctx.transaction():
            inside.set()
            assert go_on.wait(20)

    job = whole.job(stands_still, run_timeout=timedelta(seconds=0.5))
    async with whole.replica():
        execution = await whole.trigger(job)
        await until("it is inside", inside.is_set)
        await until("the server let go", lambda: not whole.sessions("cronledger transaction"))
        assert not go_on.is_set()
        whole.rows("SELECT FROM cronledger.executions WHERE id = %s FOR UPDATE NOWAIT", execution)
        go_on.set()
        row = await whole.end(execution)
    assert row["status"] == "FAILED"
    whole.close()


async def test_a_step_ends_even_where_the_server_counts_no_idleness(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two statements of one round trip; since PostgreSQL 17."""
    monkeypatch.setattr(database, "HUNG_SECONDS", PATIENCE)
    async with await Access(database_url).connect_async("still") as c:
        if c.info.server_version < 170000:
            pytest.skip("this server has no transaction_timeout")
        with pytest.raises(psycopg.Error) as raised:
            async with step_transaction(c):
                await c.execute("SELECT 1")
                await asyncio.sleep(3 * PATIENCE)
        assert is_away(raised.value)

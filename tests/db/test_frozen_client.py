"""Who stands still in the middle of a transaction, for good or for a while, holds nobody up."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from cronledger import Context
from cronledger.ledger import transactions
from cronledger.ledger.access import Access, connect
from cronledger.ledger.audits import Audits
from cronledger.ledger.connections import AsyncPool
from cronledger.ledger.database_errors import RETRYABLE_ERRORS, is_unreachable
from cronledger.ledger.session_settings import SILENT_CLIENT_SECONDS
from cronledger.ledger.transactions import step_transaction
from tests.db.support.engine import Ledger, Runner, runners
from tests.db.support.whole_replica import Whole
from tests.marks import first_fast
from tests.waiting import eventually

IDLE = "idle_in_transaction_session_timeout"
PATIENCE = 0.2


def was_given_up(error: BaseException) -> bool:
    """In a pipeline the server's last words may be lost."""
    return is_unreachable(error) or isinstance(error, RETRYABLE_ERRORS)


class StandsStill:
    """The next claim of a runner does so once it has locked its schedules, until `go_on`."""

    def __init__(self, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pid = asyncio.get_running_loop().create_future()
        self.go_on = asyncio.Event()
        self._read = runner.claimer.reader.complete
        monkeypatch.setattr(runner.claimer.reader, "complete", self._stand)

    async def _stand(self, c: Any, *rest: Any, **more: Any) -> Any:
        # Shorter than the step's own, which is tested below.
        await (await c.execute(f"SELECT set_config('{IDLE}', '100', true)")).fetchone()
        self.pid.set_result(c.info.backend_pid)
        await self.go_on.wait()
        return await self._read(c, *rest, **more)


async def test_schedules_that_a_stopped_claim_has_locked_are_free_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.job(schedule="* * * * *")
    ledger.travel(by=timedelta(minutes=1))
    async with runners(ledger.url, {}, {}) as (stopped, other):
        stands = StandsStill(stopped, monkeypatch)
        claim = asyncio.create_task(stopped.step())
        pid = await stands.pid
        await eventually(
            "its session has ended",
            lambda: not ledger.values("SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid),
        )
        (won,) = await other.step()
        stands.go_on.set()
        with pytest.raises(psycopg.Error) as raised:
            await claim
        assert was_given_up(raised.value)
        monkeypatch.undo()
        assert await stopped.step() == []
        await other.finish(won)
    assert ledger.statuses() == ["SUCCESS"]
    assert ledger.accounted() == 1


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[AsyncPool]:
    made = Access(database_url).pool("still", 1)
    await made.open()
    yield made
    await made.close()


async def test_a_step_limits_how_long_its_client_may_stand_still(pool: AsyncPool) -> None:
    async with pool.connection() as c:
        for given in (None, 60.0):
            async with step_transaction(c, silence=given):
                shown = await c.execute("SELECT setting FROM pg_settings WHERE name = %s", [IDLE])
                row = await shown.fetchone()
            assert row == (str(round(1000 * (given or SILENT_CLIENT_SECONDS))),)
            # Of the transaction, not of the connection: that may be a pooler's.
            assert await (await c.execute(f"SHOW {IDLE}")).fetchone() == ("0",)


async def test_a_step_ends_after_its_longest_duration(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if its client is never idle for long; since PostgreSQL 17."""
    monkeypatch.setattr(transactions, "HUNG_SECONDS", PATIENCE)
    async with await Access(database_url).connect_async("still") as c:
        if c.info.server_version < 170000:
            pytest.skip("this server has no transaction_timeout")
        with pytest.raises(psycopg.Error) as raised:
            async with step_transaction(c):
                while True:
                    await (await c.execute("SELECT 1")).fetchone()
                    await asyncio.sleep(PATIENCE / 4)
        assert was_given_up(raised.value)


async def test_the_statements_of_a_round_trip_are_sent_together(
    ledger: Ledger, pool: AsyncPool
) -> None:
    """A client that stops before it reads a result has sent nothing, and holds no lock."""
    state = "SELECT state FROM pg_stat_activity WHERE pid = %s"
    async with pool.connection() as c, step_transaction(c):
        await c.execute("LOCK TABLE cronledger.jobs")
        last = await c.execute("SELECT 1")
        assert ledger.values(state, c.info.backend_pid) == ["idle"]
        assert await last.fetchone() == (1,)
        assert ledger.values(state, c.info.backend_pid) == ["idle in transaction"]


@pytest.mark.parametrize(
    ("run_timeout", "of_database", "shown"),
    first_fast(
        [
            (timedelta(seconds=90), "62500ms", "62500ms"),
            (timedelta(seconds=90), "0", "90s"),
            (None, "0", "0"),
        ]
    ),
)
async def test_a_stricter_limit_of_the_database_stands(
    whole: Whole, run_timeout: timedelta | None, of_database: str, shown: str
) -> None:
    seen: list[Any] = []

    async def shows(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            row = await (await conn.execute(f"SHOW {IDLE}")).fetchone()
            seen.append(None if row is None else row[0])

    job = whole.job(shows, run_timeout=run_timeout)
    name = whole.one("SELECT current_database() AS name")
    whole.db.execute(f"ALTER DATABASE {name} SET {IDLE} = '{of_database}'".encode())
    async with whole.replica():
        assert (await whole.run(job))["status"] == "SUCCESS"
    assert seen == [shown]


def test_an_audit_ends_when_its_reader_rests_for_too_long(database_url: str) -> None:
    """Its snapshot holds up VACUUM."""
    with connect(database_url) as c, Audits(c, "cronledger").snapshot():
        assert c.execute(f"SHOW {IDLE}".encode()).fetchone() == ("10min",)


def test_commands_prepare_nothing(database_url: str) -> None:
    """Through a pooler the next statement may meet another server process."""
    with connect(database_url) as c:
        for _ in range(10):
            c.execute("SELECT %s::int", [1])
        row = c.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert row == (0,)

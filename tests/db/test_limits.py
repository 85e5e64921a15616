"""max_running of jobs and queues (I11): what it holds back is not in the way of others."""

import asyncio
from typing import Any

import pytest

from tests.db.support.engine import FAILURE, MINUTE, Ledger, runners
from tests.marks import first_fast


@pytest.mark.parametrize("of", ["queue", "job"])
async def test_pending_rows_at_a_full_limit_cost_no_busy_loop_and_hide_nothing(
    ledger: Ledger, of: str
) -> None:
    limit: dict[str, Any] = {"max_running": 1} if of == "job" else {}
    if of == "queue":
        ledger.values("INSERT INTO queues (name, max_running) VALUES ('q', 1)")
    ledger.job("a", schedule=None, queue="q", overlap="allow", **limit)
    ledger.job("z", schedule=None)
    for _ in range(12):
        ledger.trigger("a")
    async with runners(ledger.url, {"queues": ["q", "default"], "slots": 5}) as (one,):
        (running,) = await one.settle()
        ledger.trigger("z")
        (start,) = await one.settle()
        assert start.claimed.key.job_name == "z"
        assert one.delay is not None and one.delay > 0
        await one.finish(running)
        assert len(await one.settle()) == 1


SHARDS = [f"s{n:02}" for n in range(15)]


@pytest.mark.parametrize("of", first_fast(["queue", "job"]))
@pytest.mark.long
async def test_i11_limits_are_exact_under_concurrent_claims(ledger: Ledger, of: str) -> None:
    """Three runners claim, finish and re-arm at once; no instant sees more than five RUNNING."""
    limit: dict[str, Any] = {"max_running": 5} if of == "job" else {}
    if of == "queue":
        ledger.values("INSERT INTO queues (name, max_running) VALUES ('default', 5)")
    ledger.values(_WATCH)
    ledger.job(schedule="* * * * *", scope_kind="shard", scopes=SHARDS, max_attempts=2,
               retry_backoff=["0 s"], **limit)  # fmt: skip
    ledger.travel(by=MINUTE)
    done: set[Any] = set()

    async def work(runner: Any, failing: bool) -> None:
        while len(done) < len(SHARDS):
            await runner.step()
            for start in list(runner.held):
                fails = failing and start.claimed.attempt == 1
                await runner.finish(start, FAILURE if fails else None)
                if not fails:
                    done.add(start.claimed.key)
            if not runner.held:
                await runner.sweep()

    async with runners(ledger.url, {}, {}, {"slots": 3}) as three:
        await asyncio.wait_for(asyncio.gather(*(work(r, n == 1) for n, r in enumerate(three))), 60)
    assert ledger.statuses() == ["SUCCESS"] * len(SHARDS)
    assert ledger.one("SELECT max(running) FROM watched") <= 5
    assert ledger.one("SELECT max(running) FROM watched") >= 4


_WATCH = """
CREATE TABLE cronledger.watched (running bigint);
CREATE FUNCTION cronledger.watch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO cronledger.watched
    SELECT count(*) FROM cronledger.executions WHERE status = 'RUNNING';
    RETURN NULL;
END $$;
CREATE TRIGGER watch AFTER INSERT OR UPDATE ON executions
    FOR EACH STATEMENT EXECUTE FUNCTION cronledger.watch();
"""


async def test_i11_an_edit_of_the_queue_counts_where_it_runs(ledger: Ledger) -> None:
    """A plan_time of before the edit runs in the queue of now, whose room was asked for."""
    ledger.values("INSERT INTO queues (name, max_running) VALUES ('small', 1)")
    ledger.job("first", schedule=None, queue="small")
    ledger.job(schedule="* * * * *", queue="small")
    async with runners(ledger.url, {"queues": ["small", "large"]}) as (one,):
        ledger.trigger("first")
        (running,) = await one.settle()
        ledger.travel(by=MINUTE)
        ledger.edit(queue="large")
        (start,) = await one.settle()
        assert start.queue == "large"
        counts = dict(ledger.values("SELECT queue, count(*) FROM executions GROUP BY 1"))
        assert counts == {"small": 1, "large": 1}
        await one.finish(running)

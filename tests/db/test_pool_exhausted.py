"""A replica's own connections are all taken: what runs goes on, and what ended is not lost."""

import asyncio
from datetime import timedelta

import pytest

from cronledger import Context
from cronledger.engine.runtime.runtime import POOL_SIZE
from tests.db.support.whole_replica import Whole
from tests.waiting import eventually

pytestmark = pytest.mark.long


async def test_a_starved_pool_costs_no_lease_and_no_outcome(whole: Whole) -> None:
    inside, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def outlives(ctx: Context) -> str:
        inside.set()
        await go.wait()
        ended.set()
        return "kept"

    async def quick() -> None:
        pass

    jobs = [whole.job(outlives, stale_timeout="6s"), whole.job(quick)]
    async with whole.replica() as replica:
        kept = await whole.trigger(jobs[0])
        await inside.wait()
        taken = [await replica._runtime.pool.getconn() for _ in range(POOL_SIZE)]
        try:
            go.set()
            await ended.wait()
            asked = await whole.trigger(jobs[1])
            later = whole.get(kept)["stale_after"] + timedelta(seconds=4)
            await eventually("its lease is renewed", lambda: whole.get(kept)["stale_after"] > later)
            assert whole.get(kept)["status"] == "RUNNING"
            assert whole.get(asked)["status"] == "PENDING"
        finally:
            for connection in taken:
                await replica._runtime.pool.putconn(connection)
        row, other = await whole.end(kept), await whole.end(asked)
    assert (row["status"], row["attempt"], row["result"]) == ("SUCCESS", 1, "kept")
    assert (other["status"], other["attempt"]) == ("SUCCESS", 1)

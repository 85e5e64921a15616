"""max_running of jobs and queues (I11): what it holds back is not in the way of others."""

from typing import Any

import pytest

from tests.db.support.engine import Ledger, runners


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

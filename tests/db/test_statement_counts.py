"""How many statements a cycle of claim and finish takes, whatever the number of its executions."""

import pytest

from tests.db.support.engine import Ledger, runners

NOTHING_DUE = ["claim_look", "next_due"]
CLAIM = ["claim_look", "try_claim_new", "advance_schedules", "next_due"]
FINISH = ["finish_executions", "rearm_unblocked", "has_waiting"]
JOBS = 12


@pytest.mark.parametrize("due", [1, JOBS])
async def test_a_cycle_takes_the_same_statements_for_one_execution_and_for_many(
    ledger: Ledger, due: int
) -> None:
    for number in range(JOBS):
        ledger.job(f"job{number:02}", schedule="0 * * * *" if number < due else None)
    async with runners(ledger.url, {}) as (one,):
        for _ in range(2):  # the first hour: the revisions are read, and then known
            ledger.travel(by="1h")
            names = one.record()
            started = await one.step()
            assert len(started) == due
            claim = list(names)
            names.clear()
            for lease in started:
                one.put(lease)
            await one.finisher.step()
            finish = list(names)
            names.clear()
            assert await one.step() == []
    assert claim == CLAIM
    assert finish == FINISH
    assert names == NOTHING_DUE


async def test_existing_executions_take_no_more_statements(ledger: Ledger) -> None:
    ledger.job("manual", schedule=None, overlap="allow")
    async with runners(ledger.url, {}) as (one,):
        ledger.trigger("manual")
        await one.settle()
        for _ in range(JOBS):
            ledger.trigger("manual")
        names = one.record()
        assert len(await one.step()) == JOBS
    assert names == NOTHING_DUE

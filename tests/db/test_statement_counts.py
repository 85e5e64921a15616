"""How many statements a cycle of claim and finish takes, whatever the number of its executions."""

from typing import Any

import pytest

from tests.db.support.engine import Ledger, Runner, runners

NOTHING_DUE = ["claim_look", "next_due"]
CLAIM = ["claim_look", "try_claim_new", "advance_schedules", "next_due"]
FINISH = ["finish_executions", "rearm_unblocked", "has_waiting"]
JOBS = 40


def _record(runner: Runner) -> list[str]:
    """The names of the statements that the runner sends from now on."""
    names: list[str] = []
    real = runner.statements._send

    async def send(c: Any, name: str, *rest: Any) -> Any:
        names.append(name)
        return await real(c, name, *rest)

    runner.statements._send = send  # type: ignore[method-assign,assignment]
    return names


@pytest.mark.parametrize("due", [1, JOBS])
async def test_a_cycle_takes_the_same_statements_for_one_execution_and_for_many(
    ledger: Ledger, database_url: str, due: int
) -> None:
    for number in range(JOBS):
        ledger.job(f"job{number:02}", schedule="0 * * * *" if number < due else None)
    async with runners(database_url, {}) as (one,):
        for _ in range(2):  # the first hour: the revisions are read, and then known
            ledger.travel(by="1h")
            names = _record(one)
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


async def test_existing_executions_take_no_more_statements(
    ledger: Ledger, database_url: str
) -> None:
    ledger.job("manual", schedule=None, overlap="allow")
    async with runners(database_url, {}) as (one,):
        ledger.trigger("manual")
        await one.settle()
        for _ in range(JOBS):
            ledger.trigger("manual")
        names = _record(one)
        assert len(await one.step()) == JOBS
    assert names == NOTHING_DUE

"""`ctx.upstream()`: the plan_times and results for which an execution waited."""

from datetime import datetime
from typing import Any

import pytest

from cronledger import Context
from tests.db.support.whole_replica import Whole
from tests.waiting import eventually

TWO = (
    "SELECT plan_time, result FROM cronledger.executions"
    " WHERE job_name = 'load' AND trigger = 'schedule' AND status = 'SUCCESS' ORDER BY plan_time"
)


def extract(ctx: Context) -> str:
    return f"orders of {ctx.plan_time:%S}"


async def load(ctx: Context) -> list[Any]:
    return [(one.plan_time, one.result) for one in ctx.upstream("extract")]


def other(ctx: Context) -> Any:
    return ctx.upstream("extract")


@pytest.mark.long
async def test_a_handler_reads_the_results_that_it_waited_for(whole: Whole) -> None:
    whole.job(extract, schedule="*/2 * * * * *")
    whole.job(load, after="extract")
    whole.job(other)
    async with whole.replica():
        found = await eventually("two loads", lambda: (rows := whole.rows(TWO))[1:] and rows)
        triggered = await whole.run("load")
        refused = await whole.run("other")
    for row in found:
        ((plan_time, result),) = row["result"]
        assert datetime.fromisoformat(plan_time) == row["plan_time"]
        assert result == f"orders of {row['plan_time']:%S}"
    assert triggered["result"] == []
    assert "'extract' is not in requires or after of the job 'other'" in refused["error_msg"]

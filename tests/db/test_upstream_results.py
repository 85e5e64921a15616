"""`ctx.upstream()`: the plan_times and results for which an execution waited."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from cronledger import Context
from cronledger.engine.running.handlers import command
from cronledger.rules.requirements import UpstreamResult, UpstreamResults
from tests.db.support.sites import Site
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


def without_context() -> None:
    """Only its middleware reads the results."""


def counting(ctx: Context, call_next: Callable[[], Any]) -> Any:
    call_next()
    return len(ctx.upstream("extract"))


@pytest.mark.long
async def test_a_handler_reads_the_results_that_it_waited_for(whole: Whole) -> None:
    whole.job(extract, schedule="*/2 * * * * *")
    whole.job(load, after="extract")
    whole.job(without_context, after="extract", middleware=[counting])
    whole.job(other)
    counts = (
        "SELECT result FROM cronledger.executions"
        " WHERE job_name = 'without_context' AND trigger = 'schedule' AND status = 'SUCCESS'"
    )
    async with whole.replica():
        found = await eventually("two loads", lambda: (rows := whole.rows(TWO))[1:] and rows)
        counted = await eventually("it was called", lambda: whole.rows(counts))
        triggered = await whole.run("load")
        refused = await whole.run("other")
    for row in found:
        ((plan_time, result),) = row["result"]
        assert datetime.fromisoformat(plan_time) == row["plan_time"]
        assert result == f"orders of {row['plan_time']:%S}"
    assert counted[0]["result"] == 1
    assert triggered["result"] == []
    assert "'extract' is not in requires or after of the job 'other'" in refused["error_msg"]


@pytest.mark.long
async def test_handlers_without_a_context_get_the_results_as_json(whole: Whole, site: Site) -> None:
    headers: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        headers.append(request.headers["Cronledger-Upstream"])
        return web.Response()

    site.answers["/"] = answer
    whole.rows("CREATE TABLE seen (results jsonb)")
    insert = "INSERT INTO seen VALUES (current_setting('cronledger.upstream')::jsonb)"
    after: dict[str, Any] = {"after": "extract"}
    whole.job(extract, schedule="*/2 * * * * *")
    whole.declare("command", "command", {"command": 'echo "$CRONLEDGER_UPSTREAM"'}, **after)
    whole.declare("sql", "sql", {"sql": insert}, **after)
    whole.declare("http", "http", {"url": f"{site.url}/", "allow_private": True}, **after)
    whole.declare("worker", "external", {}, **after)
    outputs = (
        "SELECT output FROM cronledger.executions WHERE job_name = 'command' AND output IS NOT NULL"
    )
    claimed = """SELECT cronledger.upstream(c.id, c.lease_token) AS held,
                        cronledger.upstream(c.id, gen_random_uuid()) AS lost
                 FROM cronledger.claim_next('default', 'w', 1) c"""
    async with whole.replica():
        (output, *_) = await eventually("the command ends", lambda: whole.rows(outputs))
        (row, *_) = await eventually("the SQL ends", lambda: whole.rows("SELECT * FROM seen"))
        await eventually("the request ends", lambda: headers)
        (worker, *_) = await eventually("the worker claims", lambda: whole.rows(claimed))
    assert worker["lost"] is None
    found = (json.loads(output["output"]), row["results"], json.loads(headers[0]), worker["held"])
    for by_job in found:
        ((one,),) = by_job.values()
        at = datetime.fromisoformat(one["plan_time"]).astimezone(UTC)
        assert (set(by_job), one["result"]) == ({"extract"}, f"orders of {at:%S}")


def test_results_that_do_not_fit_are_replaced_by_the_reason() -> None:
    large = UpstreamResults(
        {"a": (UpstreamResult(datetime(2026, 1, 1, tzinfo=UTC), "x" * 70_000),)}
    )
    limit = command.UPSTREAM_BYTES
    (reason,) = large.handed_over("CRONLEDGER_UPSTREAM", limit).items()
    assert reason[0] == "CRONLEDGER_UPSTREAM_ERROR" and reason[1].endswith("at most 65536 fit")
    failed = UpstreamResults({}, OSError("no\nhost ä"))
    told = {"Cronledger-Upstream-Error": "no host \\xe4"}
    assert failed.handed_over("Cronledger-Upstream", limit) == told
    assert UpstreamResults({}).handed_over("Cronledger-Upstream", limit) == {}

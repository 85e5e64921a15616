"""The event deadline: a missed deadline opens its state, and one that is met closes it."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from cronledger.rules import outcome
from tests.db.support.engine import FAILURE, HOUR, Ledger, Runner

OPENED, CLOSED = ("deadline", "opened"), ("deadline", "closed")


def job(ledger: Ledger, **policies: Any) -> datetime:
    """Add a channel and a job of every hour that may start late; return its first plan_time."""
    ledger.channel()
    notify = Jsonb([{"channel": "ops", "on": ["deadline"]}])
    ledger.job(
        schedule="0 * * * *", grace="60 h", overlap="wait", stale_timeout="60 h", notify=notify,
        **policies,
    )  # fmt: skip
    return ledger.now().replace(minute=0, second=0, microsecond=0) + HOUR


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


async def judge(ledger: Ledger, runner: Runner, at: datetime) -> list[tuple[str, str]]:
    """Time has come to `at`, the sweeper has judged, and alerts are raised until none is left.

    Return those of the whole test.
    """
    ledger.travel(to=at)
    await runner.repair()
    return ledger.raise_alerts()


async def run(
    ledger: Ledger, runner: Runner, at: datetime, ended: outcome.Outcome | None = None
) -> None:
    """The execution that is due starts and ends at `at`, by default with success."""
    ledger.travel(to=at)
    (start,) = await runner.settle()
    await runner.finish(start, ended)


def summaries(ledger: Ledger) -> list[str]:
    return ledger.values("SELECT summary FROM alerts ORDER BY id")


@pytest.mark.long
async def test_a_missed_deadline_opens_and_one_that_is_met_late_closes(
    ledger: Ledger, one: Runner
) -> None:
    first = job(ledger, start_by="10m", finish_by="15m")
    assert await judge(ledger, one, first + minutes(5)) == []
    assert await judge(ledger, one, first + minutes(12)) == [OPENED]
    found = ledger.values("SELECT plan_time, job_name, delivery_id IS NOT NULL FROM alerts")
    assert found == [(first, "job", True)]
    assert await judge(ledger, one, first + minutes(17)) == [OPENED]
    assert ledger.values("SELECT event, count FROM alert_states") == [("deadline", 2)]
    await run(ledger, one, first + minutes(20))
    await judge(ledger, one, first + minutes(40))
    assert await judge(ledger, one, first + minutes(55)) == [OPENED, CLOSED]
    opened, closed = summaries(ledger)
    assert opened == f"job did not start by {first + minutes(10):%Y-%m-%d %H:%M:%S} UTC"
    assert closed == "job met its deadline late"


async def test_a_deadline_that_is_never_met_closes_when_a_later_plan_time_meets_its_own(
    ledger: Ledger, one: Runner
) -> None:
    first = job(ledger, finish_by="30m")
    await run(ledger, one, first + minutes(2), FAILURE)
    await judge(ledger, one, first + minutes(35))
    await run(ledger, one, first + HOUR + minutes(2))
    # The second deadline is not past.
    assert await judge(ledger, one, first + HOUR + minutes(20)) == [OPENED]
    assert await judge(ledger, one, first + HOUR + minutes(40)) == [OPENED, CLOSED]
    assert summaries(ledger)[1] == "job met its deadlines again"


async def test_the_end_of_all_deadlines_closes_with_the_next_success(
    ledger: Ledger, one: Runner
) -> None:
    first = job(ledger, start_by="10m")
    assert await judge(ledger, one, first + minutes(12)) == [OPENED]
    ledger.edit(start_by=None)
    await judge(ledger, one, first + minutes(30))
    ledger.travel(to=first + HOUR + minutes(2))
    for start in await one.settle():
        await one.finish(start)
    assert await judge(ledger, one, first + HOUR + minutes(20)) == [OPENED, CLOSED]


async def test_a_start_in_time_closes_although_the_execution_fails(
    ledger: Ledger, one: Runner
) -> None:
    first = job(ledger, start_by="10m")
    await judge(ledger, one, first + minutes(12))
    await run(ledger, one, first + minutes(20), FAILURE)
    ledger.values("UPDATE deadline_breaches SET look_at = 'infinity'")  # the first stays open
    await run(ledger, one, first + HOUR + minutes(2), FAILURE)
    await judge(ledger, one, first + HOUR + minutes(15))
    assert await judge(ledger, one, first + HOUR + minutes(30)) == [OPENED, CLOSED]
    assert summaries(ledger)[1] == "job met its deadlines again"


async def test_a_message_without_deadlines_closes_nothing(ledger: Ledger, one: Runner) -> None:
    first = job(ledger, finish_by="30m")
    await run(ledger, one, first + minutes(2), FAILURE)
    await judge(ledger, one, first + minutes(35))
    ledger.values("SELECT enqueue('job')")
    (start,) = await one.settle()
    assert start.claimed.trigger == "enqueue"
    await one.finish(start)
    assert await judge(ledger, one, first + minutes(50)) == [OPENED]


@pytest.mark.long
async def test_a_breach_of_an_earlier_plan_time_does_not_hide_that_of_a_later_one(
    ledger: Ledger, one: Runner
) -> None:
    first = job(ledger, start_by="10m", finish_by="150m")
    ledger.edit(overlap="allow")
    await run(ledger, one, first + minutes(2), FAILURE)
    await run(ledger, one, first + HOUR + minutes(2))
    # The third plan_time starts too late.
    assert await judge(ledger, one, first + 2 * HOUR + minutes(15)) == [OPENED]
    # Then the first one misses its finish_by. The second one has met its deadlines before.
    await judge(ledger, one, first + minutes(155))
    await judge(ledger, one, first + minutes(170))
    assert await judge(ledger, one, first + 2 * HOUR + minutes(100)) == [OPENED]


@pytest.mark.long
async def test_many_open_states_are_examined_by_several_transactions(
    ledger: Ledger, one: Runner
) -> None:
    """Those that do not close hide none of the others."""
    names = [f"s{n:02}" for n in range(45)]
    first = job(ledger, finish_by="10m", scope_kind="shard", scopes=names)
    assert await judge(ledger, one, first + minutes(12)) == [OPENED] * 45
    met = names[15:25] + names[42:]
    ledger.travel(to=first + minutes(20))
    for start in await one.settle():
        if start.claimed.key.scope_id in met:
            await one.finish(start)
    ledger.travel(to=first + minutes(40))
    await one.repair()
    examined = []
    while ledger.one("SELECT cronledger_internal.raise_alerts(1)"):
        examined.append(ledger.one("SELECT examined[3] FROM alert_progress"))
    assert [x for x in examined if x is not None][:2] == ["s19", "s39"]
    closed = "SELECT scope_id FROM alerts WHERE kind = 'closed' ORDER BY 1"
    assert ledger.values(closed) == met

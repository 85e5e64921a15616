"""F15 `step` runs what is due, to its end; the fixture that users get."""

import asyncio
import os
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from cronledger.declaring.app import App, Context
from cronledger.rules.problems import ConfigurationError
from cronledger.testing import Ledger
from tests.cluster.support.live import live

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.long
async def test_a_step_runs_what_is_due_and_nothing_else_does(ledger: Ledger) -> None:
    app, ran = App("steps"), []

    @app.job("*/5 * * * *", catch_up="all", overlap="wait", catch_up_window="1h")
    async def job(ctx: Context) -> int:
        await asyncio.sleep(0.001)
        ran.append(ctx.plan_time)
        return len(ran)

    ledger.travel(to=NOON + timedelta(seconds=1))
    async with ledger.replica(app, slots=1) as replica:
        assert await replica.step() == ()
        ledger.travel(by="20m")
        await asyncio.sleep(0.1)
        assert ran == []
        ended = await replica.step()
        assert [one.result for one in ended] == [1, 2, 3, 4]
        assert [one.status for one in ended] == ["SUCCESS"] * 4
        assert ran == [NOON + timedelta(minutes=5 * n) for n in (1, 2, 3, 4)]
        assert await replica.step() == ()
        assert [row["status"] for row in ledger.executions("job")] == ["SUCCESS"] * 4


@pytest.mark.long
async def test_what_a_handler_makes_due_runs_in_the_same_step(ledger: Ledger) -> None:
    app = App("steps")

    @app.job()
    async def first() -> None:
        await asyncio.to_thread(ledger.trigger, "second")

    @app.job(max_attempts=3, retry_backoff=["0s"])
    def second(ctx: Context) -> str:
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return ctx.trigger.value

    async with ledger.replica(app) as replica:
        ledger.trigger("first")
        ended = await replica.step()
    assert [(one.job, one.attempt, one.status) for one in ended] == [
        ("first", 1, "SUCCESS"),
        ("second", 1, "FAILED"),
        ("second", 2, "FAILED"),
        ("second", 3, "SUCCESS"),
    ]
    assert ended[-1].result == "manual"


@pytest.mark.long
async def test_a_pause_with_an_end_ends_in_a_step(ledger: Ledger) -> None:
    app = App("steps")

    @app.job("* * * * *")
    def job() -> None:
        return

    ledger.travel(to=NOON + timedelta(seconds=1))
    async with ledger.replica(app) as replica:
        ledger.rows("SELECT pause('job', until => %s)", NOON + timedelta(minutes=5))
        ledger.travel(by="3m")
        assert await replica.step() == ()
        ledger.travel(by="3m")
        (ran,) = await replica.step()
        assert ran.plan_time == NOON + timedelta(minutes=6)


async def test_what_is_wrong_is_said(ledger: Ledger) -> None:
    app = App("steps")
    async with live(ledger, app) as replica:
        with pytest.raises(RuntimeError, match="manual=True"):
            await replica.step()
    manual = ledger.replica(app)
    with pytest.raises(RuntimeError, match="starting"):
        await manual.step()
    with pytest.raises(ValueError, match="has no time zone"):
        ledger.travel(to=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(TypeError, match='use timedelta\\(minutes=1\\) or "1m"'):
        ledger.travel(by=60)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="has no name"):
        ledger.replica(App())


@pytest.mark.long
async def test_payloads_of_the_fixture_are_plain_values(ledger: Ledger) -> None:
    app = App("steps")

    @app.job()
    async def job(ctx: Context) -> object:
        return ctx.payload

    async with ledger.replica(app, slots=1) as replica:
        ledger.trigger("job", payload={"file": "a"})
        (ran,) = await replica.step()
        assert ran.result == {"file": "a"}
        ledger.travel(to=NOON + timedelta(days=400))  # which makes the partitions
        made = ledger.enqueue("job", payload=["b", 1], key="k")
        assert ledger.enqueue("job", payload=["c", 2], key="k") == made
        (ran,) = await replica.step()
        assert (ran.execution_id, ran.result) == (made, ["c", 2])


async def test_two_live_replicas_of_one_name_are_logged_once_by_each(ledger: Ledger) -> None:
    app, names = App("steps"), {"runner_id": "same"}
    with capture_logs() as logs:
        async with ledger.replica(app, host="a", **names) as a:
            await a.step()
            async with ledger.replica(app, host="b", **names) as b:
                for _ in range(2):
                    await a.step()
                    await b.step()
        async with ledger.replica(app, host="c", **names) as restarted:
            for _ in range(2):
                await restarted.step()
    shared = [one["other"] for one in logs if one["event"] == "runner_id_shared"]
    assert shared == [f"pid {os.getpid()} on {host}" for host in ("b", "a")]

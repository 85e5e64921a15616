"""F15 `step` runs what is due, to its end; the fixture that users get."""

import asyncio
import os
from datetime import datetime

import pytest
from structlog.testing import capture_logs

from cronledger.declaring.app import App, Context
from cronledger.rules.problems import ConfigurationError
from cronledger.testing import Ledger
from tests.cluster.support.live import live


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

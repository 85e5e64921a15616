"""F11 Apps register with a live replica and unregister, and leave others alone."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from cronledger.declaring.app import App
from cronledger.rules.problems import ConfigurationError
from cronledger.testing import Ledger
from tests.cluster.support.live import live
from tests.waiting import eventually

pytestmark = pytest.mark.long

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def nothing() -> None:
    return


def plugin(name: str, **policies: Any) -> App:
    """An App with one job of that name, every second unless `policies` say otherwise."""
    app = App(name)

    async def run() -> None:
        return

    run.__qualname__ = name
    app.job(policies.pop("schedule", "* * * * * *"), name=name, **policies)(run)
    return app


def statuses(ledger: Ledger, job: str) -> list[str]:
    return [row["status"] for row in ledger.executions(job)]


def retired(ledger: Ledger) -> list[str]:
    return [
        row["name"]
        for row in ledger.rows("SELECT name FROM jobs WHERE retired_at IS NOT NULL ORDER BY 1")
    ]


async def test_unregistering_stops_one_app_and_no_other(ledger: Ledger) -> None:
    app, staying, release = App("leaving"), App("staying"), asyncio.Event()
    ended: list[str] = []

    @app.job()
    async def running() -> None:
        try:
            await release.wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    @app.job()
    async def queued() -> None:
        return

    @staying.job()
    async def held() -> None:
        await release.wait()

    staying.job(name="other")(nothing)
    async with live(ledger, slots=2, poll_interval="200ms") as replica:
        await replica.register(app)
        await replica.register(staying)
        await asyncio.to_thread(ledger.trigger, "running")
        await asyncio.to_thread(ledger.trigger, "held")
        await eventually("both run", lambda: len(ledger.rows("SELECT FROM running")) == 2)
        await asyncio.to_thread(ledger.trigger, "queued")
        done = await replica.unregister(app)
        assert (done.retired, done.kept) == (("queued", "running"), ())
        assert len(done.cancelling) == 1
        await eventually("the handler was told", lambda: ended == ["cancelled"])
        await eventually("ended", lambda: statuses(ledger, "running") == ["CANCELLED"])
        assert statuses(ledger, "queued") == ["CANCELLED"]
        assert statuses(ledger, "held") == ["RUNNING"]
        await asyncio.to_thread(ledger.trigger, "other")
        await eventually("others go on", lambda: statuses(ledger, "other") == ["SUCCESS"])
        release.set()
        await eventually("held has ended", lambda: statuses(ledger, "held") == ["SUCCESS"])
    assert retired(ledger) == ["queued", "running"]


async def test_a_job_that_another_live_runner_declares_goes_on(ledger: Ledger) -> None:
    app = plugin("shared")
    one, two = live(ledger, app, runner_id="one"), live(ledger, app, runner_id="two")
    async with one, two:
        first = await one.unregister(app)
        assert (first.retired, first.kept) == ((), ("shared",))
        # A claim that has begun before may still win one.
        await eventually(
            "no claim is under way", lambda: not one.diagnostics().loops["dispatcher"].busy
        )
        before = {row["id"] for row in ledger.executions()}
        await eventually("it goes on", lambda: len(ledger.executions()) > len(before) + 1)
        assert {row["runner_id"] for row in ledger.executions() if row["id"] not in before} == {
            "two"
        }
        second = await two.unregister(app)
        assert (second.retired, second.kept) == (("shared",), ())
    assert retired(ledger) == ["shared"]


async def test_two_that_give_up_a_job_at_once_retire_it(ledger: Ledger) -> None:
    app = plugin("shared")
    one, two = live(ledger, app, runner_id="one"), live(ledger, app, runner_id="two")
    async with one, two:
        done = await asyncio.gather(one.unregister(app), two.unregister(app))
    assert [name for each in done for name in each.retired] == ["shared"]
    assert retired(ledger) == ["shared"]


async def test_a_reloaded_app_runs_its_new_functions(ledger: Ledger) -> None:
    def version(answer: str) -> App:
        app = App("reloaded")

        @app.job("* * * * *")
        def job() -> str:
            return answer

        return app

    old, new = version("old"), version("new")
    ledger.travel(to=NOON)
    async with ledger.replica(old) as replica:
        ledger.travel(by="1m")
        assert [ran.result for ran in await replica.step()] == ["old"]
        with pytest.raises(ConfigurationError, match="two functions have this name"):
            await replica.register(new)
        await replica.unregister(old)
        await replica.register(new)
        ledger.travel(by="1m")
        assert [ran.result for ran in await replica.step()] == ["new"]


async def test_what_is_refused_changes_nothing(ledger: Ledger) -> None:
    ledger.travel(to=NOON)
    mine = plugin("mine", schedule="* * * * *")
    foreign = App("foreign")
    foreign.job("* * * * *", name="mine")(nothing)
    async with ledger.replica(mine) as replica:
        before = replica.diagnostics().apps
        with pytest.raises(ConfigurationError, match="has no name"):
            await replica.register(App())
        with pytest.raises(ConfigurationError, match="'mine' also has a job with this name"):
            await replica.register(foreign)
        with pytest.raises(ValueError, match="is not registered"):
            await replica.unregister(foreign)
        assert replica.diagnostics().apps == before == ["mine"]
        ledger.travel(by="1m")
        assert [ran.job for ran in await replica.step()] == ["mine"]
    with pytest.raises(RuntimeError, match="stopped"):
        await replica.register(mine)


async def test_an_older_deploy_does_not_retire_a_newer_ones_jobs(ledger: Ledger) -> None:
    old, new = App("app", deploy=1), App("app", deploy=2)
    for app in (old, new):
        app.job("* * * * *", name="job")(nothing)
    async with ledger.replica(old, runner_id="one") as one:
        async with ledger.replica(new, runner_id="two"):
            pass
        done = await one.unregister(old)
    assert (done.retired, done.kept) == ((), ("job",))
    assert done.refused is not None
    assert retired(ledger) == []

"""F24 a replica in any asyncio program; F26 what a drain reports; F27 names and their events."""

import asyncio
import os
import socket
import threading

import pytest
from structlog.testing import capture_logs

from cronledger.declaring.app import App, Context
from cronledger.ledger.migrate import MigrationError
from cronledger.replica import Replica
from cronledger.rules.problems import ConfigurationError
from cronledger.settings import Settings
from cronledger.testing import Ledger
from tests.cluster.support.live import live
from tests.processes import children
from tests.waiting import eventually


def test_a_replica_starts_no_embedded_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", "embedded")
    with pytest.raises(
        ConfigurationError, match="keep `cronledger dev` or `cronledger run` running"
    ):
        Replica(App("embedded"))


def threads() -> set[threading.Thread]:
    """Return all but those of `asyncio.to_thread`, which the loop keeps to its end."""
    return {x for x in threading.enumerate() if not x.name.startswith("asyncio_")}


async def test_drain_and_abort_are_idempotent_and_leave_nothing_behind(ledger: Ledger) -> None:
    app, release, before = App("embedded"), asyncio.Event(), threads()

    @app.job()
    async def job() -> None:
        await release.wait()

    async with live(ledger, app) as replica:
        await asyncio.to_thread(ledger.trigger, "job")
        await eventually("it runs", lambda: replica.health().running)
        first = asyncio.ensure_future(replica.drain())
        await asyncio.sleep(0)
        assert replica.is_draining
        second = asyncio.ensure_future(replica.drain(timeout=0.0))
        await asyncio.sleep(0.05)
        assert not first.done()
        aborted = await replica.abort()
        assert await first == await second == aborted == await replica.drain()
        assert aborted.failed == 1
        assert replica.health().state == "stopped"
    tasks = {task.get_name() for task in asyncio.all_tasks()}
    assert not {name for name in tasks if name.startswith(("cronledger", "execution"))}
    await eventually("its threads have ended", lambda: threads() <= before)


async def test_a_start_that_fails_leaves_nothing_behind(empty_database_url: str) -> None:
    before, processes = threads(), children(os.getpid())
    replica = Replica(url=empty_database_url, settings=Settings())
    with pytest.raises(MigrationError):
        await replica.start()
    assert threads() <= before
    assert set(children(os.getpid())) <= set(processes)  # one of an earlier test may end meanwhile
    await replica.drain()
    await replica.abort()


async def test_apps_are_all_checked_before_one_is_applied(ledger: Ledger) -> None:
    other = App("other")
    other.job(name="theirs")(job_of_another)
    async with ledger.replica(other):
        pass
    first, second = App("first"), App("second")
    first.job(name="new")(job_of_another)
    second.job(name="theirs")(job_of_another)
    with pytest.raises(ConfigurationError, match="belongs to the source 'other'"):
        await live(ledger, first, second).start()
    assert ledger.rows("SELECT name FROM jobs") == [{"name": "theirs"}]


def job_of_another() -> None:
    return


@pytest.mark.long
async def test_the_deadline_of_a_drain_is_kept_and_reported(ledger: Ledger) -> None:
    app, release, drains = App("drained"), threading.Event(), asyncio.Event()

    @app.job()
    async def quick() -> None:
        await drains.wait()

    @app.job(allow_stale_reentry=True)
    async def again() -> None:
        await asyncio.sleep(60)

    @app.job()
    async def once() -> None:
        await asyncio.sleep(60)

    def deaf(ctx: Context) -> None:
        release.wait(60)

    app.job()(deaf)
    app.job(name="deaf_again", allow_stale_reentry=True)(deaf)

    @app.job()
    async def late() -> None:
        raise AssertionError("it was claimed by a replica that drains")

    replica = live(ledger, app, runner_id="one")
    collector = replica.collector()
    with capture_logs() as logged:
        await replica.start()
        replica._runtime.components.executor.GRACE = 0.2
        for name in ("quick", "again", "once", "deaf", "deaf_again"):
            await asyncio.to_thread(ledger.trigger, name)
        await eventually("all run", lambda: len(ledger.rows("SELECT 1 FROM running")) == 5)
        began = asyncio.get_running_loop().time()
        drain = asyncio.ensure_future(replica.drain(timeout=3))
        # This is published after the last claim.
        await eventually("it drains", lambda: ledger.rows(
            "SELECT 1 FROM runners WHERE state <> 'running'"
        ))  # fmt: skip
        await asyncio.to_thread(ledger.trigger, "late")
        drains.set()
        report = await drain
        took = asyncio.get_running_loop().time() - began
    release.set()
    assert took >= 3
    cut_off = {one.job for one in report.cut_off}
    assert cut_off == {"again", "once", "deaf", "deaf_again"}
    assert (report.finished, report.released, report.failed) == (1, 1, 2)
    assert report.unfinished == 1  # it is left to a thief
    counted = collector.read().measurements.attempts["default", "python"]
    assert {name: count for name, count in counted.outcomes.items() if count} == {
        "success": 1, "released": 1, "failed": 2, "lost": 1,
    }  # fmt: skip
    assert sum(counted.durations.counts) == 5
    (passed,) = [x for x in logged if x["event"] == "drain_deadline_passed"]
    assert {x["job"] for x in passed["executions"]} == cut_off
    (stopped,) = [x for x in logged if x["event"] == "runner_stopped"]
    assert (stopped["released"], stopped["failed"]) == (1, 2)
    rows = {row["job_name"]: row for row in ledger.executions()}
    assert {name: (row["status"], row["error_code"]) for name, row in rows.items()} == {
        "quick": ("SUCCESS", None), "again": ("PENDING", None), "late": ("PENDING", None),
        "once": ("FAILED", "shutdown"), "deaf": ("FAILED", "shutdown"),
        "deaf_again": ("RUNNING", None),
    }  # fmt: skip
    assert "its end is unknown" in rows["deaf"]["error_msg"]
    assert "its end is unknown" not in rows["once"]["error_msg"]
    assert rows["once"]["next_attempt_at"] is None
    assert ledger.rows("SELECT state FROM runners") == [{"state": "stopped"}]


@pytest.mark.long
async def test_a_runner_is_named_after_its_host_and_process(ledger: Ledger) -> None:
    expected = f"{socket.gethostname()}-{os.getpid()}"
    first, second = ledger.replica(), ledger.replica()
    with pytest.raises(RuntimeError, match="before it has started"):
        _ = first.runner_id
    with pytest.raises(RuntimeError, match="has not started"):
        first.diagnostics()
    async with first:
        assert first.runner_id == expected
        async with second:  # such as another container with the same host name
            assert second.runner_id == f"{expected}-2"
    async with ledger.replica() as third:
        assert third.runner_id == expected
    async with ledger.replica(runner_id="billing-1") as named:
        assert named.runner_id == "billing-1"
    assert len(ledger.rows("SELECT id FROM runners")) == 3


async def test_the_events_and_the_ledger_say_who_runs_where_and_in_which_deploy(
    ledger: Ledger,
) -> None:
    older, newer = App("older", deploy=7), App("newer", deploy=8)
    with capture_logs() as logged:
        async with ledger.replica(older, newer, queues=("heavy",), slots=3) as replica:
            assert ledger.rows("SELECT deploy FROM runner_status") == [{"deploy": 8}]
            found = ledger.rows("SELECT source, deploy FROM source_status ORDER BY source")
    assert found == [{"source": "newer", "deploy": 8}, {"source": "older", "deploy": 7}]
    events = {x["event"]: x for x in logged}
    started = events["runner_started"]
    assert started["runner"] == replica.runner_id
    assert (started["pid"], started["host"]) == (os.getpid(), socket.gethostname())
    apps = (["heavy"], 3, ["older", "newer"])
    assert (started["queues"], started["slots"], started["apps"]) == apps
    assert events["runner_draining"]["timeout_s"] == 25.0
    assert events["runner_stopped"]["runner"] == replica.runner_id

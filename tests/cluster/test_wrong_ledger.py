"""A replica whose DSN suddenly leads to another ledger, which is healthy and has the same jobs."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from structlog.testing import capture_logs

from cronledger.cli.failures import explain
from cronledger.declaring.app import App, Context
from cronledger.engine.maintenance.sweeper import REPAIRS
from cronledger.engine.runtime.loops import Loop
from cronledger.ledger import identity
from cronledger.ledger.access import connect
from cronledger.rules.problems import Exit
from cronledger.sources.apply import apply
from cronledger.testing import Ledger
from tests.cluster.support.live import live
from tests.waiting import eventually

NOON = datetime(2030, 1, 1, 12, 0, 1, tzinfo=UTC)
OTHER = "SELECT true AS other FROM identity WHERE ledger_id <> %s"


def point_elsewhere(ledger: Ledger, here: UUID | None = None) -> UUID:
    """The DSN leads to another ledger, or `here`; answers to which one it led before. As behind a
    pooler: no connection breaks."""
    (row,) = ledger.rows("SELECT ledger_id FROM identity")
    ledger.rows("UPDATE identity SET ledger_id = %s", here or uuid4())
    before: UUID = row["ledger_id"]
    return before


def everything(ledger: Ledger) -> list[Any]:
    tables = ("jobs", "schedules", "executions", "skips", "runners", "sources", "queues")
    return [ledger.rows(f"SELECT to_jsonb(t) AS t FROM {table} t ORDER BY 1") for table in tables]


def an_app() -> App:
    app = App("app")

    @app.job("* * * * *", overlap="allow", max_attempts=3, allow_stale_reentry=True)
    async def tick() -> None:
        return

    @app.job(scope_kind="shard", scopes=lambda: [str(uuid4())])
    async def sharded() -> None:
        return

    return app


@pytest.mark.long
async def test_nothing_that_a_replica_does_touches_another_ledger(ledger: Ledger) -> None:
    app, later = an_app(), App("later")

    @later.job("@hourly")
    async def new() -> None:
        return

    ledger.travel(to=NOON)  # the next firing of `tick` is almost a minute away
    replica = ledger.replica(app, runner_id="one")
    async with replica:
        ledger.travel(to=NOON + timedelta(minutes=1))
        assert [ran.job for ran in await replica.step()] == ["tick"]
        parts = replica._runtime.components
        ledger.travel(to=NOON + timedelta(minutes=2))
        ledger.trigger("tick")
        before = point_elsewhere(ledger)
        left = everything(ledger)
        parts.sweeper._maintain_at = 0.0
        steps: list[Callable[[], Awaitable[object]]] = [
            parts.check_ins.step, parts.dispatcher.step, parts.sweeper.step,
            lambda: parts.sweeper._repair(REPAIRS), parts.sweeper._maintain, parts.scopes.step,
            lambda: replica.register(later), lambda: replica.unregister(app),
            lambda: parts.lifecycle.apply(later),
        ]  # fmt: skip
        for step in steps:
            with pytest.raises(psycopg.Error, match="this is not the ledger") as caught:
                await step()
            assert caught.value.sqlstate == "CL006"
        await replica._runtime._sign_off()
        assert everything(ledger) == left
        point_elsewhere(ledger, before)
        assert "tick" in [ran.job for ran in await replica.step()]


@pytest.mark.long
async def test_what_runs_is_kept_until_the_ledger_is_back(ledger: Ledger) -> None:
    """Its end is written then; in the other ledger it is neither written nor taken for lost."""
    app, ended, held = App("app"), asyncio.Event(), asyncio.Event()

    @app.job(allow_stale_reentry=True)
    async def work(ctx: Context) -> str:
        await held.wait()
        ended.set()
        return "kept"

    with capture_logs() as logs:
        async with live(ledger, app, runner_id="one", slots=2) as replica:
            ledger.trigger("work")
            await eventually("it runs", lambda: replica.diagnostics().running)
            before = point_elsewhere(ledger)
            held.set()
            await ended.wait()
            replica._runtime.components.heartbeats.renew_now()
            replica._runtime.components.loops.wake("check_in")
            await eventually("it is reported", lambda: replica.health().database == "other")
            await eventually("so are heartbeats", lambda: "heartbeats" in replica.health().failing)
            assert not replica.health().ready
            assert (replica.diagnostics().unwritten, replica.diagnostics().lost_leases) == (1, 0)
            assert ledger.executions()[0]["status"] == "RUNNING"
            point_elsewhere(ledger, before)
            await eventually("it is written", lambda: not replica.diagnostics().unwritten)
            await eventually("it is ready", lambda: replica.health().ready)
            (row,) = ledger.executions()
            assert (row["status"], row["result"]) == ("SUCCESS", "kept")
    events = [entry["event"] for entry in logs]
    assert (events.count("other_ledger_found"), events.count("own_ledger_found")) == (1, 1)
    assert "step_failed" not in events
    (said,) = [entry for entry in logs if entry["event"] == "other_ledger_found"]
    assert f"and the runner began with ledger {before}" in said["reason"]
    assert "restart the runner" in said["remedy"]


@pytest.mark.long
async def test_a_transaction_of_a_handler_does_not_begin_in_another_ledger(ledger: Ledger) -> None:
    """Not even in a copy of its own, in which its lease is held too."""
    app, failures = App("app"), []

    @app.job()
    async def work(ctx: Context) -> None:
        before = await asyncio.to_thread(point_elsewhere, ledger)
        try:
            async with ctx.transaction() as c:
                await c.execute("CREATE TABLE effect ()")
        except psycopg.Error as error:
            failures.append(error.sqlstate)
            raise
        finally:
            await asyncio.to_thread(point_elsewhere, ledger, before)

    async with ledger.replica(app) as replica:
        ledger.trigger("work")
        (ran,) = await replica.step()
    assert (ran.status, failures) == ("FAILED", ["CL006"])


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.long
async def test_an_accepted_copy_is_another_ledger_unless_the_replica_waited_in_it(
    ledger: Ledger, refused: bool
) -> None:
    app = an_app()
    async with ledger.replica(app, runner_id="one") as replica:
        before = point_elsewhere(ledger)
        point_elsewhere(ledger, before)
        ledger.rows("UPDATE identity SET database_oid = 0")
        if refused:
            assert await replica.step() == ()
            assert replica.health().database == "other"
        with connect(ledger.url) as c:
            assert identity.accept(c, skip_missed=True).why is not None
        (row,) = ledger.rows("SELECT ledger_id, copy_of FROM identity")
        assert (row["copy_of"], row["ledger_id"] == before) == (before, False)
        ledger.travel(by="1m")
        with pytest.raises(psycopg.Error, match="this is not the ledger") as caught:
            await replica.step()
        parts = replica._runtime.components
        parts.loops._failed(Loop("check_in", parts.check_ins.step), caught.value)
        if refused:
            assert "tick" in [ran.job for ran in await replica.step()]
            assert replica.health().database == "ok"
        else:
            assert replica.health().database == "other"
            with pytest.raises(psycopg.Error, match="this is not the ledger"):
                await replica.step()
    if not refused:
        async with ledger.replica(app, runner_id="one") as restarted:
            ledger.travel(by="1m")
            assert "tick" in [ran.job for ran in await restarted.step()]


def test_what_takes_the_place_of_the_original_is_the_same_ledger(ledger: Ledger) -> None:
    before = point_elsewhere(ledger)
    point_elsewhere(ledger, before)
    ledger.rows("UPDATE identity SET database_oid = 0")
    with connect(ledger.url) as c:
        assert identity.accept(c, skip_missed=False).why is not None
        identity.require_ledger(c, "cronledger", before)
    assert ledger.rows(OTHER, before) == []


def test_a_start_in_the_middle_of_the_move_ends_with_5(database_url: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        apply(database_url, [], source="file", ledger=uuid4())
    ended = explain(caught.value)
    assert ended is not None
    assert ended.code is Exit.OTHER_DATABASE
    assert (
        "Hint: correct the DSN so that it leads to the ledger with which the runner began"
        in ended.text
    )

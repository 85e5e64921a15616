"""F8 a tick overlaps nothing and waits for no handler; F9 overlap over replicas; F12; F13."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from cronledger.declaring.app import App, Context
from cronledger.engine.claiming.claimer import Claimer
from cronledger.engine.claiming.request import ClaimResult
from cronledger.testing import Ledger
from tests.cluster.support.live import live
from tests.marks import first_fast
from tests.waiting import eventually

Claiming = Callable[..., Awaitable[ClaimResult]]


def status(ledger: Ledger, execution: int) -> str:
    (row,) = ledger.rows("SELECT status FROM executions WHERE id = %s", execution)
    return str(row["status"])


def done(ledger: Ledger, execution: int) -> Callable[[], bool]:
    return lambda: status(ledger, execution) == "SUCCESS"


async def test_a_tick_never_waits_for_handlers(ledger: Ledger) -> None:
    app, release = App("ticks"), asyncio.Event()

    @app.job()
    async def slow() -> None:
        await release.wait()

    @app.job()
    async def quick() -> None:
        return

    async with live(ledger, app) as replica:
        held = await asyncio.to_thread(ledger.trigger, "slow")
        await eventually("slow runs", lambda: replica.health().running)
        before = replica.diagnostics().ticks
        for _ in range(3):
            other = await asyncio.to_thread(ledger.trigger, "quick")
            await eventually("quick ended", done(ledger, other))
        assert replica.diagnostics().ticks >= before + 3
        assert status(ledger, held) == "RUNNING"
        release.set()


async def test_a_tick_never_overlaps_itself(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, inside, most, claims = App("ticks"), 0, 0, 0
    original: Claiming = Claimer.claim

    async def slowly(*given: Any, **named: Any) -> ClaimResult:
        nonlocal inside, most, claims
        inside, claims = inside + 1, claims + 1
        most = max(most, inside)
        try:
            await asyncio.sleep(0.02)  # whoever wakes it meanwhile must not start another
            return await original(*given, **named)
        finally:
            inside -= 1

    @app.job(overlap="wait")
    async def quick() -> None:
        return

    monkeypatch.setattr(Claimer, "claim", slowly)
    async with live(ledger, app) as replica:
        numbers = []
        for _ in range(10):
            numbers.append(await asyncio.to_thread(ledger.trigger, "quick"))
            for _ in range(5):
                replica._runtime.components.loops.wake("dispatcher")
                await asyncio.sleep(0.003)
        for number in numbers:
            await eventually("it ended", done(ledger, number))
    assert claims >= 10
    assert most == 1


async def test_no_overlap_over_replicas_for_manual_runs_too(ledger: Ledger) -> None:
    app, running, most, runners = App("overlap"), 0, 0, set[str]()
    release = asyncio.Event()

    @app.job(overlap="skip")
    async def alone() -> None:
        await release.wait()

    @app.job("* * * * * *", overlap="wait")
    async def in_turn(ctx: Context) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        runners.add(ctx.runner_id)
        await asyncio.sleep(0.03)
        running -= 1

    one = live(ledger, app, runner_id="one", slots=4)
    two = live(ledger, app, runner_id="two", slots=4)
    async with one, two:
        await asyncio.to_thread(ledger.trigger, "alone")
        await eventually("alone runs", lambda: ledger.executions("alone")[0]["status"] == "RUNNING")
        with pytest.raises(psycopg.Error, match="alone"):
            await asyncio.to_thread(ledger.trigger, "alone")
        numbers = [await asyncio.to_thread(ledger.trigger, "in_turn") for _ in range(8)]
        for number in numbers:
            await eventually("it ended", done(ledger, number))
        await eventually("one fired", lambda: "schedule" in {
            row["trigger"] for row in ledger.executions("in_turn")
        })  # fmt: skip
        release.set()
    assert most == 1
    assert len(ledger.executions("alone")) == 1


@pytest.mark.parametrize("edited", first_fast([False, True]), ids=["declared", "edited in SQL"])
async def test_without_a_run_timeout_the_heartbeats_alone_keep_it(
    ledger: Ledger, edited: bool
) -> None:
    app, release, beats = App("patience"), asyncio.Event(), set()

    @app.job(run_timeout="60s" if edited else None, stale_timeout="12s")
    async def endless() -> None:
        await release.wait()

    def beaten() -> bool:
        (row,) = ledger.rows("SELECT status, stale_after FROM executions")
        assert row["status"] in ("PENDING", "RUNNING")
        beats.add(row["stale_after"])
        return len(beats) > 4  # for longer than one lease, which is three heartbeats

    async with live(ledger, app):
        if edited:
            ledger.rows("UPDATE jobs SET run_timeout = NULL")
        running = await asyncio.to_thread(ledger.trigger, "endless")
        await eventually("heartbeats renew it", beaten)
        release.set()
        await eventually("it ends", done(ledger, running))
    assert ledger.rows("SELECT run_timeout FROM jobs") == [{"run_timeout": None}]


async def test_a_full_replica_says_so_once_and_what_is_due_has_a_reason(
    ledger: Ledger,
) -> None:
    app, release = App("slots"), asyncio.Event()

    @app.job(overlap="allow")
    async def holds() -> None:
        await release.wait()

    def reasons() -> list[str]:
        return [str(row["reason"]) for row in ledger.rows("SELECT reason FROM overdue")]

    with capture_logs() as logged:
        async with live(ledger, app, slots=2, poll_interval="100ms", drain_timeout="0s") as replica:
            for _ in range(4):
                await asyncio.to_thread(ledger.trigger, "holds")
            await eventually("both slots are taken", lambda: replica.diagnostics().saturated)
            seen = replica.diagnostics()
            assert (seen.running, seen.slots) == (2, 2)
            await asyncio.to_thread(ledger.travel, by="3s")
            await eventually("it has a reason", lambda: reasons() == ["no_slot"] * 2)
            for _ in range(5):
                replica._runtime.components.loops.wake("dispatcher")
                await asyncio.sleep(0.02)
            assert [x["event"] for x in logged].count("slots_saturated") == 1
            release.set()
            await eventually("all ran", lambda: _ended(ledger) == 4)
            release.clear()
            for _ in range(3):
                await asyncio.to_thread(ledger.trigger, "holds")
            await eventually("again", lambda: replica.diagnostics().saturated)
            # Within a minute, it is not logged again.
            assert [x["event"] for x in logged].count("slots_saturated") == 1


def _ended(ledger: Ledger) -> int:
    return sum(row["status"] == "SUCCESS" for row in ledger.executions())

"""F8 a tick waits for no handler; F13 slots."""

import asyncio

import pytest
from structlog.testing import capture_logs

from cronledger.declaring.app import App
from cronledger.testing import Ledger
from tests.cluster.support.live import live
from tests.waiting import eventually


@pytest.mark.long
async def test_a_tick_never_waits_for_handlers(ledger: Ledger) -> None:
    app, release = App("ticks"), asyncio.Event()

    @app.job()
    async def slow() -> None:
        await release.wait()

    @app.job()
    async def quick() -> None:
        return

    async with live(ledger, app) as replica:
        await asyncio.to_thread(ledger.trigger, "slow")
        await eventually("slow runs", lambda: replica.health().running)
        await asyncio.to_thread(ledger.trigger, "quick")
        await eventually("quick ended", lambda: _ended(ledger) == 1)
        release.set()


@pytest.mark.long
async def test_a_full_replica_says_so_once_and_what_is_due_has_a_reason(ledger: Ledger) -> None:
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

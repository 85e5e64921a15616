"""Claims ahead: schedules are locked and planned before they are due, and rows are written then.

Here a claim looks two minutes further ahead, and the clock of the ledger travels to the
instant while the claim is between its look and its writes.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronledger.engine.claiming import lead
from cronledger.testing import Travel
from tests.db.support.engine import Ledger, Runner, runners
from tests.marks import first_short
from tests.waiting import eventually

DUE = datetime(2031, 5, 7, 12, 0, tzinfo=UTC)
BEFORE = timedelta(minutes=1)


@pytest.fixture
async def one(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Runner]:
    """A runner at a minute before noon, and the job `noon`."""
    monkeypatch.setattr(lead, "MARGIN", 2 * BEFORE)
    ledger.travel(to=DUE - timedelta(minutes=5))
    ledger.make_partitions()
    ledger.job("noon", schedule="0 12 * * *")
    async with runners(ledger.url, {}) as (runner,):
        await runner.settle()
        await come_to(DUE - BEFORE, ledger, runner)
        yield runner


async def come_to(at: datetime, ledger: Ledger, runner: Runner) -> None:
    ledger.travel(to=at)
    await runner.live_through()


def schedule(ledger: Ledger) -> list[Any]:
    return ledger.values(
        "SELECT planned_through, next_plan_time, next_due_at, parked FROM schedules"
        " WHERE job_name = 'noon'"
    )


async def test_i8_everything_but_the_writes_precedes_the_instant(
    ledger: Ledger, one: Runner
) -> None:
    looked_at: list[datetime] = []

    def travel() -> None:
        looked_at.append(ledger.now())
        ledger.travel(to=DUE)

    names = one.record(sleep_until=travel)
    (lease,) = await one.step()
    assert looked_at[0] < DUE <= lease.claimed.started_at
    assert names.index("claim_look") < names.index("sleep_until")
    assert names[names.index("sleep_until") :] == [
        "sleep_until", "try_claim_new", "advance_schedules", "next_due",
    ]  # fmt: skip
    assert ledger.accounted("noon") == 1
    await one.settle()
    assert ledger.statuses("noon") == ["RUNNING"]


async def test_i8_a_clock_that_leaps_back_while_it_waits_starts_nothing(
    ledger: Ledger, one: Runner
) -> None:
    before = schedule(ledger)

    def leap() -> None:
        # The wait ends by the clock before the leap. The statements after it see the time after it.
        ledger.show(f"timestamptz '{DUE.isoformat()}'")

    names = one.record(sleep_until=leap)
    assert await one.step() == []
    assert "try_claim_new" in names
    assert (ledger.statuses("noon"), schedule(ledger)) == ([], before)
    assert one.claimer.unknown_commits._executions == {}
    Travel(ledger.url).close()  # puts the clock back
    await come_to(DUE, ledger, one)
    assert len(await one.settle()) == 1
    assert ledger.accounted("noon") == 1


async def test_the_next_claim_begins_earlier_after_a_long_preparation(
    ledger: Ledger, one: Runner
) -> None:
    assert one.dispatcher.next_at == DUE - lead.LEAST
    one.record(claim_look=lambda: time.sleep(0.03), sleep_until=lambda: ledger.travel(to=DUE))
    assert await one.step()
    earlier = one.claimer.lead.time
    assert timedelta(milliseconds=30) + lead.SPARE <= earlier
    assert one.dispatcher.next_at == DUE + timedelta(days=1) - earlier


@pytest.mark.parametrize("change", ["pause", "limit"])
async def test_i11_a_queue_that_is_paused_or_limited_meanwhile_starts_nothing(
    ledger: Ledger, one: Runner, change: str
) -> None:
    ledger.job("other")
    ledger.trigger("other")
    assert len(await one.settle()) == 1
    before = schedule(ledger)

    def edit() -> None:
        if change == "pause":
            ledger.values("SELECT pause_queue('default', 'trouble')")
        else:
            ledger.values("INSERT INTO queues (name, max_running) VALUES ('default', 1)")
        ledger.travel(to=DUE)

    names = one.record(sleep_until=edit)
    assert await one.step() == []
    assert names.count("try_claim_new") == 1
    assert ledger.statuses("noon") == []
    if change == "pause":
        assert schedule(ledger) == before
    else:
        assert ledger.parked("noon") == "limit"


async def test_i2_a_claim_that_is_cancelled_while_it_waits_writes_nothing(
    ledger: Ledger, one: Runner
) -> None:
    before = schedule(ledger)
    asleep = (
        "SELECT pid FROM pg_stat_activity"
        " WHERE wait_event = 'PgSleep' AND datname = current_database()"
    )
    step = asyncio.create_task(one.step())
    await eventually("it waits for the instant", lambda: ledger.values(asleep))
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert (ledger.statuses("noon"), schedule(ledger)) == ([], before)
    await come_to(DUE, ledger, one)
    assert len(await one.settle()) == 1
    assert ledger.accounted("noon") == 1


@pytest.mark.parametrize("due", ["manual", "overdue"])
async def test_what_is_due_now_never_waits_for_what_is_due_soon(
    ledger: Ledger, one: Runner, due: str
) -> None:
    ledger.travel(to=DUE - timedelta(minutes=4))
    ledger.job("now", schedule="59 11 * * *" if due == "overdue" else None)
    await one.settle()
    await come_to(DUE - BEFORE, ledger, one)
    if due == "manual":
        ledger.trigger("now")
    names = one.record()
    assert [lease.claimed.key.job_name for lease in await one.step()] == ["now"]
    assert "sleep_until" not in names
    assert ledger.statuses("noon") == []


@pytest.mark.parametrize("left", first_short(["limited queue", "running", "external", "later"]))
async def test_what_may_change_until_then_is_left_to_the_claim_at_that_instant(
    ledger: Ledger, one: Runner, left: str
) -> None:
    if left == "limited queue":
        ledger.values("INSERT INTO queues (name, max_running) VALUES ('default', 3)")
    elif left == "external":
        ledger.edit("noon", handler="external", target={})
    elif left == "running":
        ledger.trigger("noon")
        await one.settle()
    else:  # what is due by more than a millisecond after the first one
        ledger.job("first", schedule="59 59 11 * * *")
    await one.settle()
    await come_to(DUE - BEFORE, ledger, one)
    names = one.record(sleep_until=lambda: ledger.travel(to=DUE - timedelta(seconds=1)))
    started = await one.step()
    assert [x.claimed.key.job_name for x in started] == (["first"] if left == "later" else [])
    assert ("sleep_until" in names) == (left == "later")
    assert ledger.values("SELECT count(*) FROM skips WHERE job_name = 'noon'") == [0]
    fired = "SELECT count(*) FROM executions WHERE job_name = 'noon' AND plan_time = %s"
    assert ledger.one(fired, DUE) == 0

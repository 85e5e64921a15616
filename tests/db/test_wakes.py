"""What is due and blocked starts when its block is gone: no replica waits for its next poll."""

import asyncio
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import psycopg
import pytest

from cronledger.engine.claiming import lead
from cronledger.engine.claiming.claim import Claim
from cronledger.ledger.round_trips import RoundTrips
from cronledger.rules import outcome
from tests.db.support.engine import MINUTE, Ledger, Runner, runners
from tests.db.support.whole_replica import Whole
from tests.waiting import PATIENCE, eventually

DUE = datetime(2031, 5, 7, 12, 0, tzinfo=UTC)


@pytest.mark.long
async def test_a_finish_starts_the_waiting_execution_without_listen(whole: Whole) -> None:
    go = asyncio.Event()

    async def work() -> None:
        await go.wait()

    name = whole.job(work, schedule=None, overlap="wait")
    async with whole.replica():  # the job exists
        pass
    first = await whole.trigger(name)
    async with whole.replica(pgbouncer=True, poll_interval="1h"):
        await eventually("it runs", lambda: whole.get(first)["status"] == "RUNNING")
        second = await whole.trigger(name)
        go.set()
        await eventually("the next one ran", lambda: whole.get(second)["status"] == "SUCCESS")


async def test_a_finish_that_leaves_nothing_to_start_causes_no_claim(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *")
    ledger.travel(by=MINUTE)
    (lease,) = await one.settle()
    assert not one.dispatcher.starved
    await one.finish(lease)
    assert one.wakes == 0


async def test_the_last_slot_makes_the_dispatcher_starve(ledger: Ledger) -> None:
    ledger.job("a", schedule=None)
    ledger.job("b", schedule=None)
    async with runners(ledger.url, {"slots": 1}) as (one,):
        starved = [one.dispatcher.starved]  # nothing is known yet
        await one.settle()
        starved.append(one.dispatcher.starved)
        ledger.trigger("a")
        ledger.trigger("b")
        await one.step()
        starved.append(one.dispatcher.starved)
    assert starved == [True, False, True]


async def test_a_release_notifies_the_replicas(ledger: Ledger) -> None:
    """Otherwise another replica finds it with its next poll, 15 s later at most."""
    ledger.job("of a replica", schedule=None)
    ledger.job("of a worker", schedule=None, handler="external")
    for name in ("of a replica", "of a worker"):
        ledger.trigger(name)
    with psycopg.connect(ledger.url, autocommit=True) as listener:
        listener.execute("LISTEN cronledger")
        async with runners(ledger.url, {}) as (one,):
            (lease,) = await one.settle()
            await one.finish(lease, release=True)
        (note,) = listener.notifies(timeout=PATIENCE, stop_after=1)
        assert note.payload == "pending"
        list(listener.notifies(timeout=0))
        (claimed,) = ledger.values("SELECT id, lease_token FROM claim_next('default', 'w')")
        assert ledger.one("SELECT release(%s, %s)", *claimed) == "ok"
        (note,) = listener.notifies(timeout=PATIENCE, stop_after=1)
        assert note.payload == "pending"
    assert ledger.values("SELECT status FROM executions") == ["PENDING"] * 2


async def test_a_finish_finds_an_execution_that_another_replica_released(ledger: Ledger) -> None:
    ledger.job("released", schedule=None, allow_stale_reentry=True)
    ledger.job("busy", schedule=None)
    async with runners(ledger.url, {}, {}) as (one, two):
        ledger.trigger("busy")
        (busy,) = await one.settle()
        ledger.trigger("released")
        (released,) = await two.settle()
        await one.settle()
        two.put(released, outcome.shutdown(end_known=True), release=True)
        await two.finisher.step()
        assert ledger.statuses("released") == ["PENDING"]
        await one.finish(busy)
        assert one.wakes == 1


async def test_an_end_is_written_and_rearms_the_schedule_in_one_round_trip(
    ledger: Ledger, one: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.job(schedule="* * * * *", overlap="wait")
    ledger.travel(by=MINUTE)
    (running,) = await one.settle()
    ledger.travel(by=MINUTE)
    assert await one.settle() == []
    assert ledger.parked() == "waiting"
    made, make = [], RoundTrips.make

    async def count(trips: RoundTrips) -> None:
        if trips._waiting:
            made.append(len(trips._waiting))
        await make(trips)

    monkeypatch.setattr(RoundTrips, "make", count)
    await one.finish(running)
    assert made == [9]  # two transactions, each with its settings
    assert ledger.parked() is None


@pytest.fixture
def far_ahead(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims look 20 minutes ahead, and it is an hour to noon."""
    monkeypatch.setattr(lead, "MARGIN", 20 * MINUTE)
    ledger.travel(to=DUE - 60 * MINUTE)
    ledger.make_partitions()


@pytest.mark.usefixtures("far_ahead")
async def test_a_claim_ahead_keeps_no_limited_queue_from_others(ledger: Ledger) -> None:
    ledger.values("INSERT INTO queues (name, max_running) VALUES ('tight', 5)")
    ledger.job("free", schedule="0 12 * * *")
    ledger.job("limited", schedule="0 12 * * *", queue="tight")
    ledger.job("manual", schedule=None, queue="tight")
    spec: dict[str, Any] = {"queues": ("default", "tight")}
    async with runners(ledger.url, spec, spec) as (one, two):
        await one.settle()
        await two.settle()
        ledger.travel(to=DUE - 10 * MINUTE)
        for runner in (one, two):
            await runner.live_through()
        started: list[Any] = []

        async def trigger(name: str) -> None:
            if name == "sleep_until":
                ledger.trigger("manual")
                started.extend(await two.step())
                ledger.travel(to=DUE)

        one.before_sending(trigger)
        assert [x.claimed.key.job_name for x in await one.step()] == ["free"]
        assert [x.claimed.key.job_name for x in started] == ["manual"]


@pytest.mark.usefixtures("far_ahead")
async def test_schedules_that_start_together_are_planned_as_of_their_own_instants(
    ledger: Ledger, one: Runner
) -> None:
    """Half a millisecond later the first one would be missed."""
    ledger.job("first", schedule="0 12 * * *", grace="0", catch_up="skip")
    ledger.job("second", schedule="0 12 * * *", schedule_delay="500 us")
    await one.settle()
    ledger.travel(to=DUE - 10 * MINUTE)
    await one.live_through()
    one.record(sleep_until=lambda: ledger.travel(to=DUE))
    started = await one.step()
    assert sorted(x.claimed.key.job_name for x in started) == ["first", "second"]


async def test_a_claim_of_unknown_outcome_leaves_no_schedule_parked_behind_it(
    ledger: Ledger, one: Runner
) -> None:
    """The claim has landed: an execution, and the schedule that wants to replace it."""

    async def lost(claim: Claim, c: Any) -> bool:
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    ledger.job(schedule="* * * * *", overlap="replace", catch_up="latest")
    await one.settle()
    ledger.trigger()
    ledger.travel(by=MINUTE)
    with mock.patch.object(Claim, "_after_commit", lost), pytest.raises(psycopg.OperationalError):
        await one.step()
    assert (ledger.statuses(), ledger.parked()) == (["RUNNING"], "waiting")
    await one.settle()
    assert ledger.statuses() == ["CANCELLED", "RUNNING"]

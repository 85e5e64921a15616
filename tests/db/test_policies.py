"""Overlap: how a running execution is replaced, and what does not run beside another one."""

from typing import Any

import psycopg

from cronledger.engine.running.follow_up import LOCKED_SECONDS
from cronledger.rules import outcome
from tests.db.support.engine import MINUTE, Ledger, Runner, runners
from tests.db.support.rows import connected


async def test_i7_overlap_replace_asks_first_and_starts_after_the_end(
    ledger: Ledger, one: Runner
) -> None:
    """Also where a user keeps the row FOR KEY SHARE, by assert_lease."""
    ledger.job(schedule="* * * * *", overlap="replace")
    ledger.travel(by=MINUTE)
    (old,) = await one.settle()
    ledger.travel(by=MINUTE)
    with psycopg.connect(ledger.url) as user:
        fence = "SELECT cronledger.assert_lease(%s, %s)"
        user.execute(fence, [old.claimed.id, old.claimed.token])
        assert await one.settle() == []
    assert ledger.parked() == "waiting"
    assert ledger.one("SELECT cancel_requested_by FROM executions") == "overlap=replace"
    await one.finish(old, outcome.cancelled())
    (new,) = await one.settle()
    assert new.claimed.key.plan_time - old.claimed.key.plan_time == MINUTE
    assert ledger.statuses() == ["CANCELLED", "RUNNING"]


async def test_a_replacement_notifies_the_holder(ledger: Ledger, one: Runner) -> None:
    """Otherwise the holder reads the request with its next heartbeat, up to 20 s later."""
    ledger.job(schedule="* * * * *", overlap="replace")
    ledger.job("manual", handler="external", overlap="replace")
    ledger.trigger("manual")
    ledger.values("SELECT id FROM claim_next('default', 'w')")
    ledger.travel(by=MINUTE)
    await one.settle()
    with psycopg.connect(ledger.url, autocommit=True) as c:
        c.execute("LISTEN cronledger")
        ledger.trigger("manual")
        assert "cancel" in {note.payload for note in c.notifies(timeout=60, stop_after=2)}
        ledger.travel(by=MINUTE)
        assert await one.settle() == []
        assert "cancel" in {note.payload for note in c.notifies(timeout=60, stop_after=1)}


async def test_i7_a_replacement_that_could_not_be_asked_for_is_asked_for_later(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *", overlap="replace", stale_timeout="1 h")
    ledger.job("other", schedule="* * * * *")
    ledger.travel(by=MINUTE)
    asked = "SELECT cancel_requested_at IS NOT NULL FROM executions WHERE job_name = 'job'"
    await one.settle()
    with psycopg.connect(ledger.url) as writer:
        writer.execute("SELECT FROM cronledger.executions FOR UPDATE")
        ledger.travel(by=MINUTE)
        await one.settle()  # waits for nobody
        assert ledger.parked() == "waiting"
        assert ledger.skipped("other") == [("overlap", 1)]
    assert not ledger.one(asked)
    await one.repair()
    await one.settle()
    assert ledger.one(asked)


async def test_i7_a_released_execution_that_is_cancelled_did_not_run_beside_the_next_one(
    ledger: Ledger, one: Runner
) -> None:
    """The next plan_time may overtake it, here because its row is locked during the claim."""
    ledger.job(schedule="* * * * *", allow_stale_reentry=True)
    ledger.travel(by=MINUTE)
    (released,) = await one.settle()
    await one.finish(released, outcome.shutdown(end_known=True), release=True)
    with psycopg.connect(ledger.url) as other:
        other.execute("SELECT FROM cronledger.executions FOR KEY SHARE")
        ledger.travel(by=MINUTE)
        (running,) = await one.settle()
    assert running.claimed.id != released.claimed.id
    ledger.values("UPDATE jobs SET retired_at = db_now()")
    await one.finish(running)
    assert ledger.values(
        "SELECT status, finished_at - started_at > interval '0' FROM executions ORDER BY plan_time"
    ) == [("CANCELLED", None), ("SUCCESS", True)]
    first, second = ledger.values("SELECT started_at, ended_at FROM attempts ORDER BY started_at")
    assert first[0] < first[1] < second[0] < second[1]
    assert ledger.violations() == []


async def test_parked_waiting_is_rearmed_again_when_its_schedule_was_locked(
    ledger: Ledger, one: Runner
) -> None:
    """As by a claim that locks the schedule of a retry, and then does not start it."""
    ledger.job(schedule="* * * * *", overlap="wait")
    ledger.travel(by=MINUTE)
    (running,) = await one.settle()
    ledger.travel(by=MINUTE)
    await one.settle()
    assert ledger.parked() == "waiting"
    one.put(running)
    with connected(ledger.url) as other, other.transaction():
        other.execute("SELECT FROM cronledger.schedules FOR NO KEY UPDATE")
        assert await one.finisher.step() == LOCKED_SECONDS
        assert await one.finisher.step() == LOCKED_SECONDS
        assert ledger.parked() == "waiting"
    wakes = one.wakes
    assert await one.finisher.step() is None
    assert one.wakes == wakes + 1
    assert ledger.parked() is None
    assert len(await one.settle()) == 1


async def test_parked_waiting_sees_a_finish_that_came_while_it_parked(ledger: Ledger) -> None:
    """The finish re-arms before the parking commits and finds nothing parked."""
    ledger.job(schedule="* * * * *", overlap="wait")
    ledger.travel(by=MINUTE)
    async with runners(ledger.url, {}, {}) as (one, two):
        (running,) = await one.settle()
        ledger.travel(by=MINUTE)
        real = two.statements.advance_schedules

        async def late(c: Any, advances: Any) -> Any:
            await one.finish(running)
            assert ledger.parked() is None
            return await real(c, advances)

        two.statements.advance_schedules = late  # type: ignore[method-assign]
        await two.step()
        two.statements.advance_schedules = real  # type: ignore[method-assign]
        assert ledger.parked() is None
        (start,) = await two.settle()
        assert start.claimed.how == "won"

"""Winning executions: one row per plan_time, cursor and rows together, steals, tokens."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from cronledger.engine.claiming import breadth, dispatcher
from cronledger.rules import outcome
from tests.db.support.engine import FAILURE, MINUTE, Ledger, Runner, runners


async def test_i1_a_cursor_that_is_wrong_makes_no_second_row(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule="* * * * *", overlap="allow")
    ledger.travel(by=MINUTE)
    assert await one.run_due() == 1
    ledger.values(
        "UPDATE schedules SET planned_through = planned_through - interval '50 s',"
        " next_due_at = db_now()"
    )
    assert await one.settle() == []
    assert ledger.statuses() == ["SUCCESS"]


@pytest.mark.parametrize(("second", "lost"), [(outcome.success(1), 0), (FAILURE, 1)])
async def test_i4_a_success_is_not_overwritten_by_its_own_second_finish(
    ledger: Ledger, one: Runner, second: outcome.Outcome, lost: int
) -> None:
    """The answer to the finish was lost; written again it changes nothing."""
    ledger.job()
    ledger.trigger()
    (start,) = await one.settle()
    lease = one.leases.all()
    await one.finish(start, outcome.success(1))
    one.leases.add(lease)
    one.held.append(start)
    await one.finish(start, second)
    assert one.leases.lost == lost
    assert ledger.one("SELECT status, result FROM executions") == ("SUCCESS", 1)


@pytest.mark.parametrize("more", [{"schedule_delay": "10 m"}, {"jitter": "20 m"}])
async def test_i8_nothing_starts_before_due_at(
    ledger: Ledger, one: Runner, more: dict[str, str]
) -> None:
    ledger.job(schedule="@hourly", **more)
    ledger.travel(by=30 * MINUTE)  # 12:30:30
    assert await one.settle() == []
    due, plan_time = ledger.one("SELECT next_due_at, next_plan_time FROM schedules")
    assert (plan_time.minute, plan_time.second) == (0, 0)
    assert timedelta(0) <= due - plan_time <= 20 * MINUTE
    ledger.stop_clock(due - timedelta(seconds=5))
    assert await one.settle() == []
    ledger.pass_time(timedelta(seconds=5))
    (start,) = await one.settle()
    assert start.claimed.key.plan_time == plan_time
    assert start.claimed.started_at >= due
    assert ledger.one("SELECT due_at FROM executions") == due


async def test_i8_the_clock_of_the_database_goes_back_and_nothing_fires_twice_or_early(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *")
    ledger.travel(by=MINUTE)
    (start,) = await one.settle()
    await one.finish(start)
    ledger.travel(by=-10 * MINUTE)
    ledger.values("UPDATE schedules SET next_due_at = db_now()")
    assert await one.settle() == []
    ledger.travel(by=12 * MINUTE)
    (after,) = await one.settle()
    assert after.claimed.key.plan_time > start.claimed.key.plan_time
    assert ledger.accounted() == 3


@pytest.mark.parametrize(("max_attempts", "most"), [(1, 3), (4, 4)])
async def test_a_job_that_kills_its_runners_is_not_stolen_for_ever(
    ledger: Ledger, one: Runner, max_attempts: int, most: int
) -> None:
    ledger.job(allow_stale_reentry=True, max_attempts=max_attempts)
    ledger.trigger()
    attempts = [s.claimed.attempt for s in await one.settle()]
    for _ in range(most + 1):
        one.crash()
        ledger.expire()
        attempts += [s.claimed.attempt for s in await one.steal()]
    await one.sweep()
    assert attempts == [*range(1, most + 1)]
    assert ledger.one("SELECT status, error_code, next_attempt_at FROM executions") == (
        "FAILED", "stale_timeout", None,
    )  # fmt: skip


async def test_a_job_that_only_another_runner_can_run_is_left_to_it(ledger: Ledger) -> None:
    ledger.job(schedule="* * * * *")
    ledger.travel(by=MINUTE)
    async with runners(ledger.url, {}, {"functions": frozenset({"x:y"})}) as (one, other):
        assert await other.settle(most=3) == []
        assert other.delay is not None and other.delay > 1  # no busy loop
        assert ledger.parked() is None
        (start,) = await one.settle()
    assert start.claimed.how == "won"


@pytest.mark.long
async def test_a_backlog_that_takes_all_slots_keeps_nobody_who_needs_none(ledger: Ledger) -> None:
    every = {"schedule": "* * * * *", "grace": "1 h"}
    ledger.job("backlog", **every, overlap="allow", catch_up="all")
    ledger.job("blocked", **every, overlap="skip")
    ledger.job("foreign", **every, handler="external")
    ledger.trigger("blocked")
    async with runners(ledger.url, {"slots": 11}) as (one,):
        await one.settle()
        ledger.values(
            "UPDATE schedules SET planned_through = db_now() - interval '20 min',"
            " next_due_at = db_now() - interval '20 min' WHERE job_name = 'backlog'"
        )
        ledger.values(
            "UPDATE schedules SET next_due_at = db_now() - interval '1 min'"
            " WHERE job_name IN ('blocked', 'foreign')"
        )
        ledger.travel(by=MINUTE)
        assert {s.claimed.key.job_name for s in await one.step()} == {"backlog"}
        assert len(one.held) == 11
        assert ledger.skipped("blocked") == [("overlap", 1)]
        assert ledger.statuses("foreign") == ["PENDING"]
        one.slots = 1000
        await one.settle()
    assert len(ledger.statuses("backlog")) == 21


async def test_a_claim_that_follows_a_full_one_does_not_wait_for_other_runners(
    ledger: Ledger, one: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float]()

    async def note(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(dispatcher, "asyncio", SimpleNamespace(sleep=note))
    monkeypatch.setattr(breadth, "LARGEST_CLAIM", 1)
    one.claimer.breadth._limit = 1
    ledger.job(schedule="* * * * *", overlap="allow", scope_kind="t", scopes=["a", "b", "c"])
    ledger.travel(by=MINUTE)
    assert len(await one.settle()) == 3
    assert waits == []
    ledger.travel(by=MINUTE)
    await one.step()
    assert waits == [dispatcher.YIELD_SECONDS * 3 / one.slots]

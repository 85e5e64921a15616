"""Winning executions: one row per plan_time, cursor and rows together, steals, tokens."""

from datetime import timedelta
from uuid import UUID

import pytest

from cronledger.engine.claiming.breadth import LARGEST_CLAIM
from cronledger.rules import outcome
from tests.db.support.engine import FAILURE, FUNCTION, MINUTE, Ledger, Runner, runners


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


async def test_i2_skips_go_on_in_place_while_reason_and_revision_hold(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *")
    ledger.travel(by=MINUTE)
    (running,) = await one.settle()
    for _ in range(3):
        ledger.travel(by=MINUTE)
        assert await one.settle() == []
        assert ledger.one("SELECT blocked_by FROM skips") == running.claimed.id
    assert ledger.skipped() == [("overlap", 3)]
    ledger.edit(grace="59 s")  # another revision: another range
    ledger.travel(by=MINUTE)
    assert await one.settle() == []
    assert ledger.skipped() == [("overlap", 3), ("overlap", 1)]
    await one.finish(running)
    ledger.travel(by=MINUTE)
    (second,) = await one.settle()
    ledger.travel(by=MINUTE)
    assert await one.settle() == []
    # An execution lies between: the range does not go on across it.
    assert ledger.skipped() == [("overlap", 3), ("overlap", 1), ("overlap", 1)]
    assert second.claimed.attempt == 1
    assert ledger.accounted() == 7


async def test_i5_tokens_and_attempts_grow_and_history_keeps_who_held_them(ledger: Ledger) -> None:
    ledger.job(allow_stale_reentry=True, max_attempts=3, retry_backoff=["0 s"])
    ledger.trigger()
    async with runners(ledger.url, {}, {}) as (one, two):
        (first,) = await one.settle()
        await one.finish(first, FAILURE)
        (second,) = await two.settle()
        two.crash()
        ledger.expire()
        (third,) = await one.steal()
        await one.finish(third)
    claimed = [lease.claimed for lease in (first, second, third)]
    assert [(c.how, c.attempt) for c in claimed] == [("won", 1), ("retried", 2), ("stolen", 3)]
    tokens = [c.token for c in claimed]
    assert len(set(tokens)) == 3
    history, token, status = ledger.one("SELECT attempts, lease_token, status FROM executions")
    assert [(a["attempt"], a["runner_id"], a["error_code"]) for a in history] == [
        (1, "r1", "handler_error"), (2, "r2", "runner_crashed"),
    ]  # fmt: skip
    assert [UUID(a["lease_token"]) for a in history] == tokens[:2]
    assert (token, status) == (tokens[2], "SUCCESS")


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
    """A search for stale leases does not find it again after its last steal."""
    ledger.job(allow_stale_reentry=True, max_attempts=max_attempts)
    ledger.trigger()
    candidates = (
        "SELECT count(*) FROM cronledger_internal.lock_stale("
        f"'{{default}}', '{{python}}', '{{{FUNCTION}}}',"
        " '{}', false, '{}', db_now() - interval '1 day', 9)"
    )
    found = []
    attempts = [s.claimed.attempt for s in await one.settle()]
    for _ in range(most + 1):
        one.crash()
        ledger.expire()
        found.append(ledger.one(candidates))
        attempts += [s.claimed.attempt for s in await one.steal()]
    await one.sweep()
    assert attempts == [*range(1, most + 1)]
    assert found == [1] * (most - 1) + [0, 0]
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
    """What needs a slot stays due as it was, and later claims do not lock it for nothing."""
    every = {"schedule": "* * * * *", "grace": "1 h"}
    ledger.job("backlog", **every, overlap="allow", catch_up="all")
    ledger.job("blocked", **every, overlap="skip")
    ledger.job("foreign", **every, handler="external")
    ledger.trigger("blocked")
    late = "SELECT * FROM schedules WHERE job_name LIKE 'late%%' ORDER BY 1"
    async with runners(ledger.url, {"slots": 11}) as (one,):
        await one.settle()
        for n in range(60):
            ledger.job(f"late-{n:02}", **every)
        ledger.values("UPDATE schedules SET woken = false")  # as if a claim had planned them
        before = ledger.values(late)
        # First the backlog, then who needs no slot; among the others chance decides.
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
        assert one.claimer.breadth.rows(LARGEST_CLAIM) < LARGEST_CLAIM
        assert ledger.values(late) == before
        assert ledger.skipped("blocked") == [("overlap", 1)]
        assert ledger.statuses("foreign") == ["PENDING"]
        one.slots = 1000
        await one.settle()
    assert len(ledger.statuses("backlog")) == 21
    assert {ledger.statuses(f"late-{n:02}")[0] for n in range(60)} == {"RUNNING"}

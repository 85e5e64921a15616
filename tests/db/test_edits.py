"""Edits, pauses, retirements, deletions: the past belongs to the definition it had (I10)."""

from tests.db.support.engine import FAILURE, MINUTE, Ledger, Runner, runners


async def test_i10_plan_times_up_to_an_edit_run_under_the_revision_they_belong_to(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(
        schedule="*/10 * * * *", catch_up="all", overlap="allow", payload={"v": 1}, max_attempts=2
    )
    ledger.travel(by=25 * MINUTE)  # 12:25:30
    ledger.edit(schedule="*/7 * * * *", payload={"v": 2}, max_attempts=3)
    ledger.travel(by=10 * MINUTE)  # 12:35:30
    started = await one.settle()
    ran = [
        (s.claimed.key.plan_time.minute, s.claimed.revision, s.claimed.payload["v"],
         s.claimed.max_attempts) for s in started
    ]  # fmt: skip
    assert ran == [(10, 1, 1, 2), (20, 1, 1, 2), (28, 2, 2, 3), (35, 2, 2, 3)]


async def test_i10_a_pause_until_infinity_is_one_until_resumed(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule="* * * * *")
    ledger.job("other", schedule="* * * * *")
    ledger.values("SELECT pause('job', until => 'infinity')")
    ledger.travel(by=MINUTE)
    (other,) = await one.settle()
    await one.check_in()
    assert other.claimed.key.job_name == "other"
    assert ledger.one("SELECT paused_until FROM jobs WHERE name = 'job'") is None
    assert ledger.parked() == "paused"


async def test_i10_retirement_cancels_what_waits_and_what_fails_later(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule=None, overlap="allow", max_attempts=3, retry_backoff=["1 m"])
    ledger.trigger()
    (running,) = await one.settle()
    ledger.trigger()
    ledger.values("SELECT retire('job', 'alice')")
    assert ledger.statuses() == ["CANCELLED", "RUNNING"]
    cancelled = "SELECT cancel_requested_by FROM executions WHERE status = 'CANCELLED'"
    assert ledger.values(cancelled) == ["alice"]
    await one.finish(running, FAILURE)  # would be retried in a minute
    await one.repair()
    assert ledger.statuses() == ["CANCELLED", "CANCELLED"]
    ledger.edit(retired_at=None)
    ledger.travel(by=5 * MINUTE)
    assert await one.settle() == []


async def test_i10_a_deleted_job_ends_and_its_name_may_come_back(ledger: Ledger) -> None:
    ledger.job(schedule="* * * * *", catch_up="all", overlap="allow")
    async with runners(ledger.url, {}, {}) as (one, two):
        ledger.trigger()
        (running,) = await one.settle()
        ledger.values("DELETE FROM jobs")
        ledger.travel(by=3 * MINUTE)
        assert await two.settle() == []
        assert ledger.parked() == "retired"
        await one.finish(running)
        ledger.job(schedule="* * * * *", catch_up="all", overlap="allow")
        ledger.travel(by=2 * MINUTE)
        # `two` knows the revisions of the job as it was.
        assert [s.claimed.revision for s in await two.settle()] == [3, 3]
    assert ledger.skipped() == [("retired", 3)]
    assert ledger.accounted() == 5

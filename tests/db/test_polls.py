"""What a poll answers: when its runner has to claim, and what its sweeper has to repair."""

from datetime import timedelta
from typing import Any

import pytest

from tests.db.support.engine import MINUTE, Ledger, Runner, runners

JANUARY = "0 0 1 1 *"


# -- when to claim --------------------------------------------------------------------------------


PREPARED = {
    "SELECT cronledger.trigger('{0}')": True,
    "SELECT pause('{0}'); SELECT cronledger.trigger('{0}', force => true)": True,
    "SELECT enqueue('{0}'); SELECT pause('{0}')": False,
    "SELECT cronledger.trigger('{0}'); SELECT pause_queue('default')": False,
    'UPDATE jobs SET target = \'{{"python": "tests:other"}}\';'
    " SELECT cronledger.trigger('{0}')": False,
    # Whatever was triggered before the move stays in the queue that it had.
    "SELECT cronledger.trigger('{0}'); UPDATE jobs SET queue = 'others'": True,
    "SELECT cronledger.trigger('{0}'); UPDATE executions SET due_at = db_now() + interval"
    " '1 min', next_attempt_at = db_now() + interval '1 min'": False,
}


@pytest.mark.long
async def test_a_waiting_execution_is_due_exactly_if_a_claim_starts_it(
    ledger: Ledger, one: Runner
) -> None:
    for number, (prepared, due) in enumerate(PREPARED.items()):
        name = f"job{number}"
        ledger.job(name, schedule=None)
        await one.settle()
        assert (await one.poll()).due is None
        for statement in prepared.format(name).split("; "):
            ledger.values(statement)
        # What the edit has woken would be due as well.
        ledger.values(
            "UPDATE schedules SET woken = false, next_due_at = NULL, parked = 'unscheduled'"
        )
        reply = await one.poll()
        assert (reply.due is not None and reply.due <= reply.now) is due, prepared
        assert bool(await one.settle()) is due, prepared
        await one.finish_all()
        for statement in ("DELETE FROM executions", "DELETE FROM jobs"):
            ledger.values(statement)
        ledger.values("SELECT resume_queue('default')")


async def test_a_due_schedule_is_due_unless_its_queue_is_paused(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule=JANUARY)
    await one.settle()
    (planned,) = ledger.values("SELECT next_due_at FROM schedules")
    assert (await one.poll()).due == planned
    for woken in (False, True):
        ledger.values("UPDATE schedules SET next_due_at = db_now(), woken = %s", woken)
        reply = await one.poll()
        assert reply.due is not None and reply.due <= reply.now
        ledger.values("SELECT pause_queue('default')")
        assert (await one.poll()).due is None
        ledger.values("SELECT resume_queue('default')")
    # A retry that comes before it.
    ledger.values("UPDATE schedules SET next_due_at = %s, woken = false", planned)
    ledger.trigger()
    ledger.values(
        "UPDATE executions SET due_at = db_now() + interval '9 min',"
        " next_attempt_at = db_now() + interval '9 min'"
    )
    assert (await one.poll()).due == ledger.one("SELECT next_attempt_at FROM executions")


async def test_a_job_that_the_runner_ignores_is_not_due(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule=None)
    ledger.job("other", schedule=None)
    await one.settle()
    ledger.trigger()
    one.dispatcher._excluded_until["job"] = float("inf")
    assert (await one.poll()).due is None
    ledger.trigger("other")
    assert (await one.poll()).due is not None


async def test_a_forced_execution_is_found_behind_many_that_wait_for_the_end_of_the_pause(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule=None)
    await one.settle()
    ledger.values("SELECT pause('job')")
    await one.settle()
    ledger.values("SELECT enqueue('job') FROM generate_series(1, 99)")
    assert (await one.poll()).due is None
    forced = ledger.trigger(force=True)
    assert (await one.poll()).due is not None
    # What a poll does not read of a pause is left to the claim.
    ledger.values("SELECT cancel(%s)", forced)
    assert (await one.poll()).due is None
    ledger.values("SELECT enqueue('job')")
    assert (await one.poll()).due is not None


# -- what a crash left behind ---------------------------------------------------------------------


async def test_what_waits_for_a_running_execution_is_not_left_behind(ledger: Ledger) -> None:
    ledger.job(schedule="* * * * *", overlap="wait")
    ledger.travel(by=MINUTE)
    async with runners(ledger.url, {}, {}) as (one, two):
        (running,) = await one.settle()
        ledger.travel(by=MINUTE)
        await two.settle()
        assert ledger.parked() == "waiting"
        assert (await two.poll()).left_behind == []
        one.put(running)
        await one.only_write()  # and dies before it re-arms
        assert (await two.poll()).left_behind == ["schedules"]
        assert (await two.poll(most=None)).left_behind is None
        assert await two.settle() == []
        await two.repair()
        assert two.wakes == 1
        assert (await two.poll()).left_behind == []
        assert len(await two.settle()) == 1


async def test_a_broken_job_is_left_behind_once_its_error_is_gone(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job(schedule="* * * * *")
    with ledger.unchecked():
        ledger.values("UPDATE jobs SET timezone = 'Nowhere/None'")
    ledger.travel(by=MINUTE)
    await one.settle()
    assert ledger.parked() == "spec_error"
    assert (await one.poll()).left_behind == []
    ledger.values("UPDATE jobs SET spec_error = NULL")
    assert (await one.poll()).left_behind == ["schedules"]


async def test_more_than_a_poll_examines_counts_as_left_behind(ledger: Ledger, one: Runner) -> None:
    """The sweeper then searches, as it would without polls."""
    policies: dict[str, dict[str, Any]] = {
        "waiting": {"overlap": "wait"}, "limit": {"max_running": 1},
        "no_runner": {"target": {"python": "tests:other"}}, "spec_error": {},
    }  # fmt: skip
    for reason, policy in policies.items():
        names = [f"{reason}{number}" for number in range(3)]
        for name in names:
            ledger.job(name, schedule=JANUARY, **policy)
        await one.settle()
        if reason in ("waiting", "limit"):
            for name in names:
                ledger.trigger(name)
            assert len(await one.settle()) == 3
        ledger.values(
            "UPDATE schedules SET parked = %s, next_due_at = NULL, woken = false"
            " WHERE job_name = ANY (%s)", reason, names,
        )  # fmt: skip
        if reason == "spec_error":
            ledger.values("UPDATE jobs SET spec_error = 'broken'")
        assert (await one.poll(most=3)).left_behind == [], reason
        assert (await one.poll(most=2)).left_behind == ["schedules"], reason
        await one.finish_all()
        ledger.values("DELETE FROM executions")
        ledger.values("DELETE FROM jobs")


async def test_inputs_orphans_and_old_runners_are_left_behind(ledger: Ledger, one: Runner) -> None:
    ledger.job(schedule=None)
    await one.settle()
    ledger.values("SELECT enqueue('job', watermark => 5)")
    ledger.values("SELECT pause('job')")
    assert (await one.poll()).left_behind == ["inputs"]
    ledger.values("UPDATE schedules SET success_watermark = 5")
    assert (await one.poll()).left_behind == []
    ledger.values("ALTER TABLE jobs DISABLE TRIGGER USER")
    ledger.values("UPDATE jobs SET retired_at = db_now()")
    assert (await one.poll()).left_behind == ["orphans"]
    ledger.values("DELETE FROM jobs")
    long_ago = ledger.now() - timedelta(days=2)
    ledger.runner("old", queues=[], handlers=["tests:work"], stale_after=long_ago)
    assert (await one.poll()).left_behind == ["orphans", "runners"]
    await one.repair()
    assert (await one.poll()).left_behind == []


async def test_an_analyze_of_empty_tables_is_repaired_before_the_next_maintenance(
    ledger: Ledger, one: Runner
) -> None:
    await one.repair()
    assert (await one.poll()).left_behind == []
    ledger.values("ANALYZE executions, schedules")
    reply = await one.poll()
    assert reply.left_behind == ["statistics"]
    one.sweeper.checked_in(reply)
    await one.sweeper.step()
    assert (await one.poll()).left_behind == []

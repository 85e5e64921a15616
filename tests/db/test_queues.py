"""Queues: who takes from which, and what a pause of one or of all of them stops."""

from datetime import timedelta

import pytest

from tests.db.support.engine import Ledger, Runner, runners


async def test_a_paused_queue_starts_nothing_and_the_others_go_on(ledger: Ledger) -> None:
    ledger.job("light")
    ledger.job("heavy", queue="heavy")
    for name in ("light", "heavy"):
        ledger.trigger(name)
    assert ledger.one("SELECT pause_all('deploy', 'me')") == 2
    assert ledger.one("SELECT pause_all()") == 0
    async with runners(ledger.url, {"queues": ["heavy", "default"]}) as (r,):
        assert await r.settle() == []
        assert ledger.one("SELECT resume_queue('default')")
        assert [s.job.name for s in await r.settle()] == ["light"]
        assert ledger.one("SELECT resume_all()") == 1
        assert [s.job.name for s in await r.settle()] == ["heavy"]
    assert ledger.one("SELECT resume_all()") == 0


async def test_nothing_is_stolen_in_a_pause(ledger: Ledger) -> None:
    """A steal is a start: it waits for the end of the pause, and then it happens."""
    ledger.job(schedule=None, queue="heavy", allow_stale_reentry=True)
    ledger.trigger()
    only = {"queues": ["heavy"]}
    async with runners(ledger.url, only, only) as (holder, thief):
        assert len(await holder.settle()) == 1
        assert ledger.one("SELECT pause_queue('heavy')")
        ledger.expire()
        assert await thief.steal() == []
        assert ledger.one("SELECT pause('job')")
        assert ledger.one("SELECT resume_queue('heavy')")
        assert await thief.steal() == []
        assert ledger.statuses() == ["RUNNING"]
        assert ledger.one("SELECT resume('job')")
        (stolen,) = await thief.steal()
        assert (stolen.claimed.how, stolen.claimed.attempt) == ("stolen", 2)


@pytest.mark.parametrize("limit", ["2", "NULL"])
async def test_i11_a_higher_limit_of_a_queue_starts_waiting_schedules(
    ledger: Ledger, one: Runner, limit: str
) -> None:
    """Without a wait for the sweeper; a lower one ends nothing."""
    for name in ("a", "b"):
        ledger.job(name, schedule="* * * * *", overlap="wait")
    assert ledger.one("SELECT limit_queue('default', 1)") is None
    ledger.travel(by=timedelta(minutes=1))
    (first,) = await one.settle()
    (other,) = {"a", "b"} - {first.job.name}
    assert ledger.parked(other) == "limit"
    assert ledger.one(f"SELECT limit_queue('default', {limit})") == 1
    assert [s.job.name for s in await one.settle()] == [other]
    assert ledger.one("SELECT limit_queue('default', 1)") == (None if limit == "NULL" else 2)
    assert ledger.statuses("a") == ledger.statuses("b") == ["RUNNING"]


@pytest.mark.parametrize(("older", "queues"), [("b", ("a", "b")), ("a", ("b", "a"))])
async def test_of_two_queues_with_one_slot_the_older_schedule_starts(
    ledger: Ledger, older: str, queues: tuple[str, ...]
) -> None:
    now = ledger.now()
    for queue in "ab":
        due = now + timedelta(minutes=10 if queue == older else 20)
        ledger.job(queue, schedule=f"{due.minute} * * * *", queue=queue)
    async with runners(ledger.url, {"queues": queues, "slots": 1}) as (one,):
        assert await one.settle() == []
        ledger.travel(by=timedelta(minutes=30))
        await one.step()
    assert [x.claimed.key.job_name for x in one.held] == [older]

"""Queues: who takes from which, and what a pause of one or of all of them stops."""

from datetime import timedelta

import pytest
from psycopg import errors

from tests.db.support.engine import Ledger, runners


async def test_a_replica_takes_from_its_queues_alone(ledger: Ledger) -> None:
    ledger.job("light")
    ledger.job("heavy", queue="heavy", overlap="allow")
    for _ in range(6):
        ledger.trigger("heavy")
    ledger.trigger("light")
    async with runners(ledger.url, {"queues": ["heavy"], "slots": 4}, {}) as (heavy, default):
        assert [s.job.name for s in await heavy.settle()] == ["heavy"] * 4
        assert [s.job.name for s in await default.settle()] == ["light"]
        for start in list(heavy.held):
            await heavy.finish(start)
        assert len(await heavy.settle()) == 2


async def test_a_paused_queue_starts_nothing_and_the_others_go_on(ledger: Ledger) -> None:
    ledger.job("light")
    ledger.job("heavy", queue="heavy")
    made = [ledger.trigger("heavy"), ledger.trigger("light")]
    assert ledger.one("SELECT pause_queue('heavy', 'why')")
    async with runners(ledger.url, {"queues": ["heavy", "default"]}) as (r,):
        assert [s.job.name for s in await r.settle()] == ["light"]
        assert ledger.one("SELECT resume_queue('heavy')")
        assert [s.claimed.id for s in await r.settle()] == made[:1]


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


async def test_everything_is_paused_and_goes_on(ledger: Ledger) -> None:
    ledger.job("light")
    ledger.job("heavy", queue="heavy")
    for name in ("light", "heavy"):
        ledger.trigger(name)
    assert ledger.one("SELECT pause_all('deploy', 'me')") == 2
    assert ledger.one("SELECT pause_all()") == 0
    async with runners(ledger.url, {"queues": ["heavy", "default"]}) as (r,):
        assert await r.settle() == []
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="its queue default is"):
            ledger.trigger("light")
        assert ledger.one("SELECT resume_all()") == 2
        assert {s.job.name for s in await r.settle()} == {"light", "heavy"}
    assert ledger.one("SELECT resume_all()") == 0


@pytest.mark.parametrize("limit", ["2", "NULL"])
async def test_i11_a_higher_limit_of_a_queue_starts_waiting_schedules(
    ledger: Ledger, limit: str
) -> None:
    """Without a wait for the sweeper; a lower one ends nothing."""
    for name in ("a", "b"):
        ledger.job(name, schedule="* * * * *", overlap="wait")
    assert ledger.one("SELECT limit_queue('default', 1)") is None
    ledger.travel(by=timedelta(minutes=1))
    async with runners(ledger.url, {}) as (one,):
        (first,) = await one.settle()
        (other,) = {"a", "b"} - {first.job.name}
        assert ledger.parked(other) == "limit"
        assert ledger.one(f"SELECT limit_queue('default', {limit})") == 1
        assert [s.job.name for s in await one.settle()] == [other]
        assert ledger.one("SELECT limit_queue('default', 1)") == (None if limit == "NULL" else 2)
    assert ledger.statuses("a") == ledger.statuses("b") == ["RUNNING"]


def test_operators_pause_everything_limit_queues_and_backfill(ledger: Ledger) -> None:
    ledger.job("job")
    ledger.values("SET ROLE cronledger_operator")
    for call in (
        "pause_all()",
        "resume_all()",
        "limit_queue('default', 3)",
        "backfill('job', '{}')",
    ):
        ledger.values(f"SELECT {call}")
    ledger.values("RESET ROLE")

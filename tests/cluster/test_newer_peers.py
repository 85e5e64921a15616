"""A runner with older tzdata or croniter executes what newer ones plan, and plans it not itself."""

from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest

from cronledger.declaring.app import App
from cronledger.engine import peers
from cronledger.engine.maintenance.check_in import fingerprint
from cronledger.engine.peers import LONGEST_WAIT, NewerPeers, version
from cronledger.replica import Replica
from cronledger.rules.model import Handler, Job, ScopeKey
from cronledger.rules.plans import ScheduleRow
from cronledger.testing import Ledger

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
OLD = {"tzdata": "2020a", "croniter": "7.0.0"}
OLDER = "cronledger.engine.runtime.assembly.fingerprint"


def job(**values: object) -> Job:
    policies = {"schedule": "* * * * *", "handler": Handler.PYTHON, "target": {"python": "m:f"}}
    return Job.model_validate({"name": "j", **policies, **values})


BERLIN = job(timezone="Europe/Berlin")


def check_in(**said: object) -> dict[str, object]:
    """What `check_in` answers of a newer runner that claims; `said` differs."""
    able = {
        "id": "new", "queues": ["default"], "handlers": ["m:f"], "labels": [],
        "fingerprint": {**OLD, "tzdata": "2020b"}, "seen": "12:00", "ttl_s": 50, "free": 1,
        "database": "ok", "claimed_s_ago": 115,
        "dispatcher": {"failures": 0, "busy": False, "step_age_s": 115},
    }  # fmt: skip
    return able | said


def row(scope: str = "global", cursor: datetime = NOON, queue: str = "default") -> ScheduleRow:
    return ScheduleRow(ScopeKey("j", "global", scope), queue, cursor, 1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock of the peers: its one element."""
    now = [1000.0]
    monkeypatch.setattr(peers, "monotonic", lambda: now[0])
    return now


def after_minutes(number: int) -> datetime:
    """Return an instant at which the next firing is almost a minute away."""
    return NOON + timedelta(minutes=number, seconds=1)


def test_schedules_that_older_libraries_may_compute_differently_are_left_to_newer_runners() -> None:
    cases: tuple[tuple[dict[str, str], dict[str, object], bool], ...] = (
        ({"tzdata": "2020b"}, {"timezone": "Europe/Berlin"}, True),
        ({"tzdata": "2020b"}, {}, False),
        ({"tzdata": "2019c"}, {"timezone": "Europe/Berlin"}, False),
        ({"croniter": "7.0.10"}, {}, True),
        ({"croniter": "7.0.10"}, {"schedule": "@every 90s"}, False),
        ({"croniter": "7.0.10"}, {"schedule": None}, False),
        ({"croniter": "6.9"}, {}, False),
    )
    for theirs, spec, left in cases:
        mine = NewerPeers(OLD)
        other = check_in(fingerprint={**OLD, **theirs})
        mine.observe([other])
        assert mine.delegates(job(**spec), row()) is left
        assert mine.delegated_jobs() == ["j"] * left
        assert not mine.delegates(job(**spec), row(queue="heavy"))
        mine.observe([{**other, "handlers": ["m:g"]}])
        assert not mine.delegates(job(**spec), row())
        mine.observe(None)
        assert not mine.delegates(job(**spec), row())
        assert mine.delegated_jobs() == []


def test_nothing_is_left_to_a_runner_that_is_not_seen_to_claim() -> None:
    """Such as one that is full, that has just started, or whose claims fail or hang."""
    cases: tuple[dict[str, object], ...] = (
        {"free": 0}, {"free": -1}, {"database": "other"}, {"database": "away"}, {"database": None},
        {"claimed_s_ago": None},
        {"dispatcher": {"failures": 3, "busy": False, "step_age_s": 1}},
        {"dispatcher": {"failures": 0, "busy": True, "step_age_s": 26}},
        {"dispatcher": None, "claimed_s_ago": 26},
    )  # fmt: skip
    for said in cases:
        mine = NewerPeers(OLD)
        assert mine.observe([check_in()])
        assert mine.delegates(BERLIN, row())
        assert mine.observe([check_in(**said)])
        assert not mine.delegates(BERLIN, row())
        mine.observe([check_in(**said), check_in(id="newest")])
        assert mine.delegates(BERLIN, row())


def test_what_a_newer_runner_does_not_plan_in_time_is_planned_here(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = mock.Mock()
    monkeypatch.setattr(peers, "log", log)
    mine = NewerPeers(OLD)
    mine.observe([check_in()])
    assert mine.delegates(BERLIN, row("a"))
    assert mine.delegates(BERLIN, row("b"))
    assert (mine.delegated_jobs(), mine.reconsider_after()) == (["j"], LONGEST_WAIT)
    clock[0] += LONGEST_WAIT
    assert (mine.delegated_jobs(), mine.reconsider_after()) == ([], None)
    # Planned meanwhile and due again; also where it comes before what was not planned.
    assert mine.delegates(BERLIN, row("a", NOON + timedelta(minutes=1)))
    assert not mine.delegates(BERLIN, row("b"))
    assert [call.args for call in log.warning.call_args_list] == [("planning_taken_over",)]
    mine.observe([check_in()])
    assert not mine.delegates(BERLIN, row("c"))
    mine.observe([check_in(seen="12:01")])
    assert mine.delegates(BERLIN, row("c"))


def test_a_newer_runner_that_plans_is_left_its_work_for_ever(clock: list[float]) -> None:
    mine = NewerPeers(OLD)
    mine.observe([check_in()])
    for minute in range(60):
        assert mine.delegates(BERLIN, row(cursor=NOON + timedelta(minutes=minute)))
        clock[0] += LONGEST_WAIT


def test_nothing_waits_for_a_newer_runner_longer_than_half_of_its_grace(clock: list[float]) -> None:
    mine = NewerPeers(OLD)
    mine.observe([check_in()])
    brief = job(timezone="Europe/Berlin", grace=timedelta(seconds=1))
    assert mine.delegates(brief, row())
    assert mine.reconsider_after() == 0.5
    clock[0] += 0.5
    assert not mine.delegates(brief, row())
    assert not mine.delegates(job(timezone="Europe/Berlin", grace=timedelta(0)), row("other"))


def test_what_was_left_is_looked_at_again_when_the_newer_runners_or_jobs_change() -> None:
    mine = NewerPeers(OLD)
    mine.observe([check_in()])
    assert mine.delegates(BERLIN, row())
    assert not mine.observe([check_in(seen="12:01")])
    assert mine.delegated_jobs() == ["j"]
    assert mine.observe([check_in(free=0)])
    assert mine.delegated_jobs() == []
    mine.observe([check_in()])
    assert mine.delegates(BERLIN, row("other"))
    mine.reconsider()
    assert mine.delegated_jobs() == []


def test_looking_again_makes_no_wait_longer(clock: list[float]) -> None:
    """Jobs may be edited all the time, and runners come and go."""
    mine = NewerPeers(OLD)
    for second in range(int(LONGEST_WAIT)):
        mine.observe([check_in(seen=str(second)), check_in(id=f"new-{second}")])
        assert mine.delegates(BERLIN, row())
        clock[0] += 1
        mine.reconsider()
    assert not mine.delegates(BERLIN, row())


def test_versions_sort_as_people_read_them() -> None:
    sorted_already = ["", "2025", "2025a", "2025b", "2026a"]
    assert sorted(sorted_already, key=version) == sorted_already
    assert version("7.0.10") > version("7.0.9") > version("7.0") > version(None)


@pytest.mark.long
async def test_an_older_runner_executes_and_does_not_plan(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    """The clock of the peers stands still: no delegation ends because the machine is busy."""
    app = App("zones")

    @app.job("* * * * *", timezone="Europe/Berlin", overlap="allow")
    def berlin() -> None:
        return

    @app.job("* * * * *", overlap="allow")
    def utc() -> None:
        return

    def runner(name: str) -> Replica:
        return ledger.replica(app, runner_id=name)

    ledger.travel(to=after_minutes(0))
    new = runner("new")
    old = runner("old")
    async with new:
        with monkeypatch.context() as patched:
            patched.setattr(OLDER, lambda: {**fingerprint(), "tzdata": "2001a"})
            await old.start()
        assert await new.step() == ()
        ledger.travel(to=after_minutes(1))
        await new._runtime.components.check_ins.step()  # seen in good time, and to have claimed
        assert [ran.job for ran in await old.step()] == ["utc"]
        ledger.trigger("berlin")
        assert [(ran.job, ran.trigger) for ran in await old.step()] == [("berlin", "manual")]
        assert [(ran.job, ran.trigger) for ran in await new.step()] == [("berlin", "schedule")]
        ledger.travel(to=after_minutes(2))
        await new._runtime.components.check_ins.step()
        assert [ran.job for ran in await old.step()] == ["utc"]
    # The newer one has left: nobody else is there to plan it.
    assert [ran.job for ran in await old.step()] == ["berlin"]
    await old.drain()

"""Planned pauses: the instant at which they begin, their jobs, their union, and their end."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cronledger.engine.claiming import lead
from tests.db.support.engine import MINUTE, SECOND, Ledger, Runner, runners
from tests.db.support.rows import Db, start_blocked, value
from tests.marks import first_short

NOON = datetime(2031, 5, 7, 12, 0, tzinfo=UTC)
TICK = timedelta(microseconds=1)


@pytest.fixture
async def one(ledger: Ledger) -> AsyncIterator[Runner]:
    """A runner at noon, when the clock stands still, and the job `job` of each minute."""
    ledger.stop_clock(NOON)
    ledger.job(schedule="* * * * *", queue="default", labels={"tier": "batch"}, owner="ann")
    async with runners(ledger.url, {}) as (runner,):
        await runner.settle()
        yield runner


def plan(ledger: Ledger, begins: datetime | None = None, **selection: Any) -> int:
    """Plan a pause, from now by default, and return its id."""
    values = {"reason": "freeze", "begins": begins} | selection
    values = {k: Jsonb(v) if isinstance(v, dict) else v for k, v in values.items()}
    arguments = ", ".join(f"{argument} => %s" for argument in values)
    pause: int = ledger.one(f"SELECT plan_pause({arguments})", *values.values())
    return pause


async def pass_minutes(ledger: Ledger, runner: Runner, count: int) -> int:
    """Return how many executions start and end in so many minutes, minute by minute."""
    started = 0
    for _ in range(count):
        ledger.pass_time(MINUTE)
        await runner.live_through()
        for _ in range(2):  # the first round may only begin a pause
            started += await runner.run_due()
    return started


def state(ledger: Ledger) -> tuple[Any, ...]:
    found: tuple[Any, ...] = ledger.one("SELECT paused_at, paused_until, paused_reason FROM jobs")
    return found


def paused(ledger: Ledger, job: str = "job") -> bool:
    found: bool = ledger.one("SELECT paused_at IS NOT NULL FROM jobs WHERE name = %s", job)
    return found


def starts(ledger: Ledger, job: str = "job") -> list[tuple[str, datetime]]:
    return ledger.values(
        "SELECT state, effective_from FROM job_revisions WHERE job_name = %s ORDER BY revision", job
    )


@pytest.mark.parametrize(
    "selection",
    first_short(
        [{}, {"job": "job"}, {"queue": "default"}, {"owner": "ann"}, {"labels": {"tier": "batch"}}]
    ),
)
async def test_a_pause_applies_to_what_is_due_from_the_one_instant_through_the_other(
    ledger: Ledger, one: Runner, selection: dict[str, Any]
) -> None:
    plan(ledger, NOON + 2 * MINUTE, until=NOON + 5 * MINUTE, **selection)
    assert await pass_minutes(ledger, one, 1) == 1
    ledger.pass_time(90 * SECOND)  # it begins late, and exactly
    await one.live_through()
    assert not await one.settle()
    assert paused(ledger)
    assert starts(ledger)[-1] == ("paused", NOON + 2 * MINUTE - TICK)
    assert await pass_minutes(ledger, one, 2) == 0
    ledger.pass_time(MINUTE)
    await one.sweep()
    assert not paused(ledger)
    await pass_minutes(ledger, one, 1)
    assert ledger.skipped() == [("paused", 4)]
    assert ledger.accounted() == 6
    assert not ledger.violations()


@pytest.mark.parametrize(
    "selection",
    first_short([{"job": "other"}, {"queue": "q"}, {"owner": "bob"}, {"labels": {"tier": "web"}},
     {"queue": "default", "owner": "bob"}, {"labels": {"tier": "batch", "a": "b"}}]),
)  # fmt: skip
async def test_each_part_of_a_selection_has_to_match(
    ledger: Ledger, one: Runner, selection: dict[str, Any]
) -> None:
    ledger.job("other", schedule=None)
    plan(ledger, **selection)
    assert await pass_minutes(ledger, one, 2) == 2
    assert not paused(ledger)


async def test_a_claim_ahead_ends_where_a_pause_begins(
    ledger: Ledger, one: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lead, "MARGIN", 3 * MINUTE)
    plan(ledger, NOON + MINUTE)
    names = one.record()
    assert not await one.settle()
    assert "claim_look" in names
    assert "sleep_until" not in names
    assert await pass_minutes(ledger, one, 1) == 0
    assert ledger.skipped() == [("paused", 1)]


async def test_a_claim_during_which_a_pause_begins_plans_nothing_of_it(
    ledger: Ledger, one: Runner
) -> None:
    """The clock of the ledger passes `from` within the statement that locks and reads."""
    ledger.values(
        "CREATE OR REPLACE FUNCTION cronledger_internal.require_own_database() RETURNS void"
        " LANGUAGE sql AS $$ UPDATE cronledger.time_travel SET ahead = ahead + '45 s' $$"
    )
    plan(ledger, NOON + MINUTE)
    ledger.pass_time(30 * SECOND)
    ledger.edit(description="planned again", max_attempts=2)
    await one.step()
    assert ledger.now() > NOON + MINUTE
    (through,) = ledger.values("SELECT planned_through FROM schedules")
    assert through < NOON + MINUTE


async def test_an_outage_over_pauses_skips_what_was_due_in_them(ledger: Ledger) -> None:
    """No replica ran when they began, and none when they ended."""
    ledger.stop_clock(NOON)
    ledger.job(schedule="* * * * *", catch_up="all", overlap="wait", grace=timedelta(hours=1))
    plan(ledger, NOON + MINUTE, until=NOON + 2 * MINUTE)
    plan(ledger, NOON + 3 * MINUTE, until=NOON + 5 * MINUTE)
    ledger.pass_time(6 * MINUTE)
    async with runners(ledger.url, {}) as (one,):
        await one.run_due()
        await one.sweep()
        await one.run_due()
        await one.sweep()
        await one.run_due()
    assert ledger.skipped() == [("paused", 2), ("paused", 3)]
    assert ledger.accounted() == 6
    assert not ledger.violations()


async def test_a_pause_that_was_planned_too_late_begins_after_what_was_planned(
    ledger: Ledger, one: Runner
) -> None:
    """A COMMIT after `from`: what was planned meanwhile stays valid."""
    assert await pass_minutes(ledger, one, 2) == 2
    ledger.values(
        "INSERT INTO pauses (from_at, requested_by, created_at) VALUES (%s, 'ann', db_now())",
        NOON + MINUTE + TICK,
    )
    ledger.pass_time(timedelta(seconds=1))
    assert not await one.settle()
    assert starts(ledger)[-1] == ("paused", NOON + 2 * MINUTE + timedelta(seconds=1))
    assert await pass_minutes(ledger, one, 2) == 0
    assert not ledger.violations()


async def test_a_pause_begins_after_the_deadlines_that_were_computed_before_it_was_planned(
    ledger: Ledger, one: Runner
) -> None:
    """No claim has planned anything, because no slot was free."""
    ledger.values("DELETE FROM jobs WHERE name = 'job'")
    ledger.job(schedule="* * * * *", start_by="10s", grace="1s")
    await one.settle()
    ledger.pass_time(2 * MINUTE)
    await one.repair()
    ledger.values(
        "INSERT INTO pauses (from_at, requested_by, created_at) VALUES (%s, 'ann', db_now())",
        NOON + MINUTE - TICK,
    )
    ledger.pass_time(SECOND)
    await one.live_through()
    assert not await one.settle()
    assert starts(ledger)[-1] == ("paused", NOON + 2 * MINUTE + SECOND)
    assert await pass_minutes(ledger, one, 1) == 0
    assert not ledger.violations()


async def test_a_delayed_firing_that_was_planned_too_early_stays_valid(ledger: Ledger) -> None:
    """Its plan_time is before `from`, and it was due after it."""
    ledger.stop_clock(NOON)
    ledger.job(schedule="* * * * *", schedule_delay=3 * MINUTE)
    async with runners(ledger.url, {}) as (one,):
        await one.settle()
        assert await pass_minutes(ledger, one, 4) == 1  # that of 12:01
        ledger.values(
            "INSERT INTO pauses (from_at, requested_by, created_at) VALUES (%s, 'ann', db_now())",
            NOON + 3 * MINUTE + 30 * SECOND,
        )
        assert await pass_minutes(ledger, one, 3) == 0
    assert starts(ledger)[-1] == ("paused", NOON + 5 * MINUTE)
    assert not ledger.violations()


async def test_jobs_that_are_added_or_edited_during_a_pause_follow_it(
    ledger: Ledger, one: Runner
) -> None:
    plan(ledger, labels={"tier": "batch"}, until=NOON + 60 * MINUTE)
    await one.settle()
    assert paused(ledger)
    ledger.job("new", schedule="* * * * *", labels={"tier": "batch"})
    ledger.job("web", schedule="* * * * *", labels={"tier": "web"})
    assert (paused(ledger, "new"), paused(ledger, "web")) == (True, False)
    ledger.edit("web", labels=Jsonb({"tier": "batch"}))
    ledger.edit("new", labels=Jsonb({}))
    assert (paused(ledger, "new"), paused(ledger, "web")) == (False, True)
    await pass_minutes(ledger, one, 2)
    assert ledger.statuses("new") == ["SUCCESS"] * 2
    assert not ledger.statuses("web")
    assert not ledger.violations()


async def test_a_job_is_paused_during_the_union_of_its_pauses(ledger: Ledger, one: Runner) -> None:
    ledger.values("SELECT pause('job', 'by hand', %s)", NOON + 2 * MINUTE)
    wide = plan(ledger, NOON + MINUTE, until=NOON + 4 * MINUTE, owner="ann", requested_by="bob")
    open_ = plan(ledger, NOON + 3 * MINUTE, reason="incident")
    await one.settle()
    assert state(ledger) == (NOON, NOON + 2 * MINUTE, "by hand")
    await pass_minutes(ledger, one, 1)
    assert state(ledger) == (NOON, NOON + 4 * MINUTE, "freeze")
    assert starts(ledger)[-1] == ("paused", NOON + MINUTE - TICK)
    await pass_minutes(ledger, one, 2)
    assert state(ledger) == (NOON, None, "incident")
    ledger.values("SELECT end_pause(%s, 'carol')", open_)
    await one.settle()
    assert state(ledger) == (NOON, NOON + 4 * MINUTE, "freeze")
    ledger.values("SELECT end_pause(%s)", wide)
    await one.settle()
    assert not paused(ledger)
    assert await pass_minutes(ledger, one, 1) == 1
    assert ledger.skipped() == [("paused", 2), ("paused", 1)]  # of two revisions
    assert not ledger.violations()


async def test_an_edit_after_the_first_of_two_pauses_holds_nothing_that_was_forced_in_it(
    ledger: Ledger, one: Runner
) -> None:
    plan(ledger, until=NOON + 2 * MINUTE)
    plan(ledger, NOON + MINUTE)
    for _ in range(2):
        ledger.values("SELECT cronledger_internal.take_up_pauses()")
        ledger.pass_time(30 * SECOND)
        ledger.trigger(force=True)
        ledger.pass_time(30 * SECOND)
    ledger.edit(description="edited")
    await one.live_through()
    assert [start.claimed.trigger for start in await one.settle()] == ["manual"]
    await one.finish_all()
    assert await one.run_due() == 1


def test_settling_locks_the_pauses_of_all_jobs_in_one_order(
    ledger: Ledger, db: Db, other: Db
) -> None:
    """The first job has the second pause, and another transaction locks them by id."""
    for job in ("b", "a"):
        ledger.job(job)
        plan(ledger, job=job)
    ledger.values("SELECT cronledger_internal.begin_pauses()")
    lock = "SELECT FROM cronledger.pauses WHERE job_name = %s FOR UPDATE"
    with db.transaction():
        db.execute(lock, ["b"])
        settle = "SELECT cronledger_internal.settle_pauses(10)"
        settling = start_blocked(ledger.db, other, lambda: value(other, settle))
        db.execute(lock, ["a"])
    assert settling.result() == 2
    assert paused(ledger, "a") and paused(ledger, "b")


async def test_a_pause_by_hand_outlasts_one_that_was_due_before_and_begins_after_it(
    ledger: Ledger, one: Runner
) -> None:
    first = plan(ledger)
    await one.settle()
    plan(ledger, NOON + MINUTE, until=NOON + 3 * MINUTE)
    ledger.pass_time(MINUTE + SECOND)  # no replica claims meanwhile
    ledger.values("SELECT end_pause(%s)", first)
    ledger.pass_time(SECOND)
    ledger.values("SELECT pause('job', 'by hand')")
    await one.live_through()
    for _ in range(2):
        await one.settle()
    assert state(ledger) == (NOON, None, "by hand")


@pytest.mark.parametrize(("beside", "was_open"), [(-TICK, True), (timedelta(0), False)])
def test_a_pause_is_over_from_its_end_on(ledger: Ledger, beside: timedelta, was_open: bool) -> None:
    ledger.stop_clock(NOON)
    pause = plan(ledger, until=NOON + MINUTE)
    ledger.values("SELECT cronledger_internal.take_up_pauses()")
    ledger.pass_time(MINUTE + beside)
    ledger.job("late", schedule=None)
    assert paused(ledger, "late") is was_open
    assert ledger.one("SELECT end_pause(%s)", pause) is was_open


async def test_pause_and_resume_of_a_job_are_rows(ledger: Ledger, one: Runner) -> None:
    rows = (
        "SELECT state, job_name, reason, from_at, until_at, requested_by, ended_at, ended_by"
        " FROM pause_status ORDER BY id"
    )
    ledger.values("SELECT pause('job', 'why', NULL, 'ann')")
    row = ["in force", "job", "why", NOON, None, "ann", None, None]
    assert ledger.values(rows) == [tuple(row)]
    ledger.pass_time(MINUTE)
    until = NOON + 9 * MINUTE
    assert ledger.one("SELECT pause('job', 'longer', %s, 'bob')", until) is False
    row[2:6] = "longer", NOON, until, "bob"
    assert ledger.values(rows) == [tuple(row)]
    ledger.values("SELECT resume('job', 'carol')")
    row[0], row[6:] = "ended", [NOON + MINUTE, "carol"]
    assert ledger.values(rows) == [tuple(row)]
    ledger.edit(paused_at=ledger.now())  # by SQL
    assert ledger.one("SELECT count(*) FROM pause_status WHERE state = 'in force'") == 1
    ledger.values("DELETE FROM jobs")
    ledger.job()
    assert not paused(ledger)


async def test_a_planned_pause_can_be_changed_and_withdrawn_until_it_begins(
    ledger: Ledger, one: Runner
) -> None:
    pause = plan(ledger, NOON + MINUTE)
    changes = {"begins": NOON + 2 * MINUTE, "until": NOON + 3 * MINUTE, "reason": "later"}
    change = "SELECT change_pause(%s, %s, %s, %s)"
    assert ledger.one(change, pause, *changes.values()) is True
    assert ledger.one(change, pause, *changes.values()) is False
    shown = "SELECT state, from_at, until_at, reason, begun_at FROM pause_status WHERE id = %s"
    assert ledger.one(shown, pause) == ("planned", *changes.values(), None)
    assert await pass_minutes(ledger, one, 2) == 1
    with pytest.raises(psycopg.Error, match=f"pause {pause}: it began at"):
        ledger.values(change, pause, None, None, "too late")
    withdrawn = plan(ledger, NOON + 5 * MINUTE)
    assert ledger.one("SELECT end_pause(%s)", withdrawn) is True
    with pytest.raises(psycopg.Error, match=f"pause {withdrawn}: it ended at"):
        ledger.values(change, withdrawn, None, None, "too late")
    assert ledger.one("SELECT state FROM pause_status WHERE id = %s", withdrawn) == "withdrawn"


async def test_a_job_that_is_being_edited_waits_without_delay_for_the_others(
    ledger: Ledger, one: Runner
) -> None:
    """The pause is due, and the job must not start by its old definition either."""
    ledger.job("other", schedule="* * * * *")
    await one.settle()
    plan(ledger, NOON + MINUTE)
    with psycopg.connect(ledger.url) as editing:
        editing.execute("SELECT FROM cronledger.jobs WHERE name = 'job' FOR UPDATE")
        assert await pass_minutes(ledger, one, 1) == 0
        assert (paused(ledger), paused(ledger, "other")) == (False, True)
        ledger.pass_time(SECOND)
        execution = ledger.trigger(force=True)
        ledger.pass_time(SECOND)
        assert not await one.settle()
    await one.settle()
    await one.settle()
    assert starts(ledger)[-1] == ("paused", NOON + MINUTE - TICK)
    assert ledger.one("SELECT status FROM executions WHERE id = %s", execution) == "RUNNING"
    assert await pass_minutes(ledger, one, 1) == 0
    assert not ledger.violations()


async def test_what_exists_does_not_start_before_the_pause_of_its_job_is_applied(
    ledger: Ledger, one: Runner
) -> None:
    """Neither an enqueued execution nor a retry."""
    with psycopg.connect(ledger.url) as editing:
        editing.execute("SELECT FROM cronledger.jobs WHERE name = 'job' FOR UPDATE")
        ledger.values("SELECT enqueue('job')")
        plan(ledger, NOON + SECOND)
        ledger.pass_time(2 * SECOND)
        await one.live_through()
        assert not [*await one.settle(), *await one.settle()]
    assert not [*await one.settle(), *await one.settle()]
    assert ledger.statuses() == ["PENDING"]


@pytest.mark.parametrize("begun", [False, True])
async def test_plan_times_of_a_pause_that_is_not_applied_yet_have_no_deadlines(
    ledger: Ledger, one: Runner, *, begun: bool
) -> None:
    """Other jobs do not wait. The step applies the pause itself, because there may be no claim."""
    for name in ("job", "other"):
        ledger.values("DELETE FROM jobs WHERE name = %s", name)
        ledger.job(name, schedule="* * * * *", start_by="10s", grace="1s")
    await one.settle()
    plan(ledger, NOON + SECOND, until=NOON + 2 * MINUTE + SECOND, job="job")
    ledger.pass_time(4 * MINUTE)
    await one.live_through()
    if begun:
        ledger.values("SELECT cronledger_internal.begin_pauses()")
    with psycopg.connect(ledger.url) as editing:
        editing.execute("SELECT FROM cronledger.jobs WHERE name = 'job' FOR UPDATE")
        await one.repair()
        late = "SELECT job_name, extract(minute FROM plan_time)::int FROM breaches ORDER BY 1, 2"
        assert ledger.values(late) == [("other", 1), ("other", 2), ("other", 3)]
    await one.repair()  # without a claim, as if no slot were free
    assert ledger.values(late) == [("job", 3), ("other", 1), ("other", 2), ("other", 3)]
    await one.settle()
    assert not ledger.violations()


@pytest.mark.parametrize("ends", [False, True])
async def test_an_edit_that_is_open_while_a_pause_begins_or_ends_follows_it(
    ledger: Ledger, one: Runner, ends: bool
) -> None:
    """Neither transaction sees the row of the other."""
    pause = plan(ledger, None if ends else NOON + MINUTE, labels={"tier": "night"})
    await one.settle()
    with psycopg.connect(ledger.url) as editing:
        editing.execute(
            "UPDATE cronledger.jobs SET labels = '{\"tier\": \"night\"}' WHERE name = 'job'"
        )
        ledger.pass_time(2 * MINUTE)
        await one.live_through()
        if ends:
            ledger.values("SELECT end_pause(%s)", pause)
        await one.settle()
    assert paused(ledger) is ends
    await one.settle()
    assert paused(ledger) is not ends
    assert not ledger.values("SELECT job_name FROM unsettled_pauses")
    await pass_minutes(ledger, one, 2)
    assert not ledger.violations()


@pytest.mark.parametrize("call", ["claim_next('workers', 'w')", "claim('job', 'w')"])
def test_workers_begin_pauses_without_replicas(ledger: Ledger, call: str) -> None:
    ledger.stop_clock(NOON)
    ledger.job(handler="external", target={}, queue="workers")
    ledger.values("SELECT enqueue('job')")
    plan(ledger, NOON + MINUTE, queue="workers")
    ledger.pass_time(2 * MINUTE)
    answers = ledger.values(f"SELECT * FROM {call}")
    assert not answers or answers[0][0] == "paused"
    assert paused(ledger)
    assert not ledger.values("SELECT job_name FROM unsettled_pauses")


def test_a_worker_gets_nothing_of_a_job_before_its_pause_is_applied(ledger: Ledger) -> None:
    ledger.stop_clock(NOON)
    ledger.job(handler="external", target={}, queue="workers")
    ledger.values("SELECT enqueue('job')")
    plan(ledger, NOON + MINUTE, queue="workers")
    ledger.pass_time(2 * MINUTE)
    with psycopg.connect(ledger.url) as editing:
        editing.execute("SELECT FROM cronledger.jobs WHERE name = 'job' FOR UPDATE")
        assert not ledger.values("SELECT * FROM claim_next('workers', 'w')")
    assert not paused(ledger)


async def test_a_retired_job_is_left_alone_and_paused_when_it_returns(
    ledger: Ledger, one: Runner
) -> None:
    ledger.values("SELECT retire('job')")
    plan(ledger)
    await one.settle()
    assert not paused(ledger)
    ledger.edit(retired_at=None)
    assert paused(ledger)


async def test_pauses_are_pruned_after_retention(ledger: Ledger, one: Runner) -> None:
    ended = plan(ledger, until=NOON + MINUTE)
    open_ = plan(ledger)
    await one.settle()
    ledger.values("SELECT count(*) FROM maintain_partitions()")
    assert ledger.values("SELECT id FROM pauses ORDER BY id") == [ended, open_]
    ledger.pass_time(ledger.one("SELECT keep FROM retention") + 2 * MINUTE)
    ledger.values("SELECT count(*) FROM maintain_partitions()")
    assert ledger.values("SELECT id FROM pauses ORDER BY id") == [open_]


async def test_the_next_firing_names_the_pause_that_will_skip_it(
    ledger: Ledger, one: Runner
) -> None:
    ledger.job("other", schedule="* * * * *")
    assert await one.settle() == []
    at = NOON + MINUTE
    found = """SELECT u.job_name, u.pause, o.next_pause
               FROM upcoming u JOIN job_overview o ON o.name = u.job_name ORDER BY 1"""
    plan = "SELECT plan_pause('x', begins => %s, until => %s, job => 'job')"
    ledger.one(plan, at + TICK, None)
    assert ledger.values(found) == [("job", None, None), ("other", None, None)]
    pause = ledger.one(plan, at, at + TICK)
    assert ledger.values(found) == [("job", pause, pause), ("other", None, None)]
    ledger.one("SELECT end_pause(%s)", pause)
    assert ledger.values(found) == [("job", None, None), ("other", None, None)]

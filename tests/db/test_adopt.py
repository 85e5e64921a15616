"""An observed job moves to replicas at one instant, and back: each plan_time runs on one side."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from cronledger.audit.verify import verify
from tests.db.support import rows
from tests.db.support.engine import MINUTE, SECOND, Ledger, Runner
from tests.db.test_observed import end

SWITCH = "SELECT adopt('job', %s, back => %s, reason => 'the move', requested_by => 'ann')"


@pytest.fixture
async def base(ledger: Ledger, one: Runner) -> datetime:
    """A full minute, just before which the clock stands still. The job can be adopted."""
    instant: datetime = ledger.one("SELECT date_trunc('minute', db_now()) + interval '10 min'")
    ledger.stop_clock(instant - 30 * SECOND)
    ledger.job(schedule="* * * * *", observed=True, catch_up="all", overlap="wait")
    assert await one.settle() == []
    return instant


def runs_elsewhere(ledger: Ledger, start: datetime) -> bool:
    replies: bool = ledger.one("SELECT runs FROM hand_over('job', %s)", start)
    return replies


async def fire(ledger: Ledger, one: Runner, plan_time: datetime) -> str:
    """Fire a plan_time on both sides, and return which of them has run it."""
    ledger.stop_clock(plan_time + SECOND)
    other = runs_elsewhere(ledger, plan_time + SECOND)
    if other:
        end(ledger)
    started = [lease.claimed.key.plan_time for lease in await one.settle()]
    assert started in ([], [plan_time])
    await one.finish_all()
    return "other" * other + "own" * len(started)


async def test_each_plan_time_runs_on_exactly_one_side(
    ledger: Ledger, one: Runner, base: datetime
) -> None:
    ledger.one(SWITCH, base + 2 * MINUTE - 5 * SECOND, False)
    sides = [await fire(ledger, one, base + n * MINUTE) for n in range(3)]
    ledger.one(SWITCH, base + 4 * MINUTE - 5 * SECOND, True)
    sides += [await fire(ledger, one, base + n * MINUTE) for n in range(3, 6)]
    ledger.one(SWITCH, base + 6 * MINUTE - 5 * SECOND, False)
    sides += [await fire(ledger, one, base + n * MINUTE) for n in range(6, 8)]
    assert sides == ["other", "other", "own", "own", "other", "other", "own", "own"]
    ran = "SELECT plan_time, trigger, status, runner_id = 'observed' FROM executions ORDER BY 1"
    assert ledger.values(ran) == [
        (base + n * MINUTE, "schedule", "SUCCESS", side == "other") for n, side in enumerate(sides)
    ]
    assert (ledger.skipped(), ledger.violations()) == ([], [])
    edits = "SELECT reason, requested_by FROM job_history WHERE reason IS NOT NULL"
    assert ledger.values(edits) == [("the move", "ann")] * 3
    assert ledger.one("SELECT count(*) FROM audit WHERE verb = 'adopt' AND outcome = 'done'") == 3


async def test_the_first_plan_time_of_replicas_does_not_wait_for_a_missing_report(
    ledger: Ledger, one: Runner, base: datetime
) -> None:
    ledger.edit(grace=5 * MINUTE)
    ledger.one(SWITCH, base + MINUTE - 5 * SECOND, False)
    ledger.stop_clock(base + 50 * SECOND)
    assert await one.settle() == []
    assert ledger.skipped() == []
    assert await fire(ledger, one, base + MINUTE) == "own"
    assert ledger.skipped() == [("not_reported", 1)]
    # The report of the skipped plan_time may still come.
    end(ledger, run_key="a", started_at=base + SECOND, ended_at=base + 2 * SECOND)
    assert await one.settle() == []
    row = "SELECT trigger, status FROM executions WHERE plan_time = %s"
    assert ledger.one(row, base) == ("observed", "SUCCESS")
    assert ledger.violations() == []


async def test_verify_finds_a_plan_time_on_the_wrong_side(
    ledger: Ledger, one: Runner, base: datetime
) -> None:
    ledger.one(SWITCH, base + MINUTE - 5 * SECOND, False)
    assert [await fire(ledger, one, base + n * MINUTE) for n in (0, 1)] == ["other", "own"]
    with ledger.unchecked():
        ledger.values(
            "UPDATE job_revisions SET definition = definition || jsonb_build_object("
            "'adopted_at', %s::timestamptz) WHERE definition ? 'adopted_at' RETURNING 1",
            base + 10 * MINUTE,
        )
    assert [one.kind for one in verify(ledger.url)] == ["unreported"]


@pytest.mark.parametrize("reason", ["missed", "superseded"])
async def test_a_plan_time_of_replicas_that_waited_across_the_return_is_not_skipped(
    ledger: Ledger, one: Runner, base: datetime, reason: str
) -> None:
    ledger.edit(grace=5 * MINUTE)
    ledger.one(SWITCH, base + MINUTE - 5 * SECOND, False)
    assert await fire(ledger, one, base) == "other"
    ledger.one(SWITCH, base + 2 * MINUTE - 5 * SECOND, True)
    # No replica plans before the next plan_time of the other scheduler is due.
    waited = base + MINUTE
    ledger.stop_clock(waited + MINUTE + SECOND)
    end(ledger)
    assert [lease.claimed.key.plan_time for lease in await one.settle()] == [waited]
    await one.finish_all()
    assert await one.settle() == []
    assert (ledger.skipped(), ledger.violations()) == ([], [])
    ledger.values("DELETE FROM executions WHERE plan_time = %s RETURNING 1", waited)
    rows.skip(ledger.db, waited, reason=reason, revision=4, created_at=waited + MINUTE)
    assert [(one.kind, one.plan_time) for one in verify(ledger.url)] == [("untrue_skip", waited)]


async def test_what_a_job_missed_without_a_handler_does_not_start_when_it_has_one_again(
    ledger: Ledger, one: Runner, base: datetime
) -> None:
    """Even if it is within grace, and no replica has planned it in between."""
    ledger.edit(observed=False, catch_up="latest", overlap="skip", grace=5 * MINUTE)
    assert await fire(ledger, one, base) == "own"
    edits: list[tuple[int, dict[str, Any]]] = [
        (1, {"handler": "observed", "target": {}}),
        (30, {"handler": "python", "target": {"python": "tests:work"}}),
    ]
    for seconds, columns in edits:
        ledger.stop_clock(base + MINUTE + seconds * SECOND)
        ledger.edit(**columns)
    assert await one.settle() == []
    assert (ledger.skipped(), list(verify(ledger.url))) == ([("missed", 1)], [])


def test_an_adoption_can_be_withdrawn_and_moved(ledger: Ledger, base: datetime) -> None:
    def switch(
        minutes: int, *, back: bool, withdraws: Sequence[int] = (), moves: bool = True
    ) -> list[bool]:
        at = base + minutes * MINUTE
        withdrawn = [base + n * MINUTE for n in withdraws]
        for call in (f"preview_adopt('job', '{at}', {back})", f"adopt('job', '{at}', {back})"):
            found = ledger.values(f"SELECT moves, withdrawn FROM {call}")
            assert found == [(moves, withdrawn)]
        return [runs_elsewhere(ledger, base + n * MINUTE) for n in range(4)]

    assert switch(2, back=False) == [True, True, False, False]
    assert switch(3, back=True) == [True, True, False, True]
    assert switch(1, back=False, withdraws=[3]) == [True, False, False, False]
    assert switch(2, back=True) == [True, False, True, True]
    assert switch(1, back=True, withdraws=[1, 2], moves=False) == [True] * 4
    assert switch(0, back=False) == [False] * 4
    ledger.stop_clock(base)
    assert switch(3, back=True) == [False, False, False, True]
    assert switch(2, back=False, withdraws=[3], moves=False) == [False] * 4


def test_an_edit_of_the_source_keeps_the_side(ledger: Ledger, base: datetime) -> None:
    ledger.one(SWITCH, base, False)
    assert not runs_elsewhere(ledger, base)
    ledger.edit(observed=False)
    assert ledger.one("SELECT adopted_at FROM jobs") is None
    # Replicas fire the job from the edit on.
    assert [runs_elsewhere(ledger, base - n * MINUTE) for n in (0, 1)] == [False, True]


async def test_the_other_scheduler_runs_an_adopted_job_that_was_retired_or_deleted(
    ledger: Ledger, one: Runner, base: datetime
) -> None:
    ledger.one(SWITCH, base - 5 * SECOND, False)
    assert await fire(ledger, one, base) == "own"
    ledger.edit(retired_at=base)
    assert await fire(ledger, one, base + MINUTE) == "other"
    row = "SELECT trigger, status FROM executions WHERE plan_time > %s"
    assert ledger.one(row, base) == ("observed", "SUCCESS")
    reply = "SELECT runs, adoptable, replicas_from FROM hand_over('job', %s)"
    assert ledger.one(reply, base) == (False, True, None)  # it was started before
    ledger.edit(retired_at=None)
    assert not runs_elsewhere(ledger, base + 2 * MINUTE)
    ledger.values("DELETE FROM jobs RETURNING 1")
    assert ledger.one(reply, base + 2 * MINUTE) == (True, True, None)
    with pytest.raises(psycopg.Error, match="does not exist"):
        end(ledger)
    assert ledger.violations() == []


@pytest.mark.parametrize(
    ("columns", "at", "back", "problem"),
    [
        ({"handler": "observed"}, MINUTE, False, "no handler"),
        ({"observed": False}, MINUTE, False, "is not observed"),
        ({"retired_at": "now"}, MINUTE, False, "is retired"),
        ({}, MINUTE, True, "is not adopted"),
        ({"adopted_at": "2080-01-01", "returned_at": "2080-01-01"}, MINUTE, True, "is not adopted"),
        ({"adopted_at": "2020-01-01"}, MINUTE, False, "replicas fire it already"),
        (
            {"adopted_at": "2020-01-01", "returned_at": "2080-01-01"},
            timedelta(days=25_000), False, "returns to the other scheduler",
        ),
        ({}, 4 * SECOND, False, "must be between 5 s and 100 years ahead"),
    ],
)  # fmt: skip
def test_an_impossible_switch_is_refused(
    ledger: Ledger, columns: dict[str, Any], at: timedelta, back: bool, problem: str
) -> None:
    ledger.job(**{"observed": True, **columns})
    now = ledger.one("SELECT db_clock()")
    with pytest.raises(psycopg.Error, match=problem):
        ledger.one(SWITCH, now + at, back)
    with pytest.raises(psycopg.Error, match="does not exist"):
        ledger.one(SWITCH.replace("'job'", "'none'"), now + MINUTE, back)


def test_a_job_that_was_never_observed_runs_wherever_it_is_started(ledger: Ledger) -> None:
    ledger.job()
    for job in ("job", "unknown"):
        assert ledger.values("SELECT runs, adoptable FROM hand_over(%s)", job) == [(True, False)]

"""Edits, pauses, retirements, jitter, and schedules that cannot be read."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cronledger.rules.model import JobState, Parked, Revision
from cronledger.rules.planner import due_at
from cronledger.rules.plans import PlannedSkip, Retirement
from tests.unit.support.planning import KEY, at, job, planned, revision, runs, say, skips

PAUSED, RETIRED, ACTIVE = JobState.PAUSED, JobState.RETIRED, JobState.ACTIVE
EACH = {"catch_up": "all", "overlap": "allow"}


def history(*states: tuple[str, JobState], **policies: Any) -> list[Revision]:
    """Revisions of one definition; the first one has held for days."""
    first = revision(1, "-9 00:00", job(**(EACH | policies)))
    return [
        first,
        *(revision(n, since, first.job, state) for n, (since, state) in enumerate(states, start=2)),
    ]


# --- edits ---------------------------------------------------------------------------------------


def test_plan_times_up_to_an_edit_belong_to_the_old_revision_and_none_of_them_to_the_new() -> None:
    revisions = [
        revision(1, "-9 00:00", job("@every 10m", **EACH)),
        revision(2, "10:20", job("@every 15m", **EACH)),
    ]
    answer = planned("09:55", "10:50", revisions)
    assert runs(answer) == ["10:00", "10:10", "10:20", "10:30", "10:45"]
    assert [run.revision.revision for run in answer.runs] == [1, 1, 1, 2, 2]
    assert answer.planned_revision == 2


def test_the_later_of_two_edits_holds_if_the_clock_went_back_between_them() -> None:
    revisions = [
        revision(1, "-9 00:00", job("@every 10m", **EACH)),
        revision(2, "10:30", job(None, **EACH)),
        revision(3, "10:15", job("@every 5m", **EACH)),
    ]
    answer = planned("09:55", "10:30", revisions)
    assert runs(answer) == ["10:00", "10:10", "10:20", "10:25", "10:30"]
    assert answer.planned_revision == 3


# --- pauses and retirements ----------------------------------------------------------------------


DELAYED = {"schedule_delay": "5m"}
HISTORIES: dict[str, tuple[list[Revision], str, str, list[str], list[str], JobState | None]] = {
    "a resume never fires the past": (
        history(("10:05", PAUSED), ("11:00", ACTIVE)), "10:00", "11:10",
        ["11:10"], ["paused 10:10-11:00 x6 r2"], None),
    "a pause between plan_time and due_at counts": (
        history(("10:02", PAUSED), ("10:07", ACTIVE), **DELAYED), "09:55", "10:20",
        ["10:10"], ["paused 10:00"], None),
    "a pause keeps the plan_times that were due before it": (
        history(("10:05", PAUSED)), "09:55", "10:30", [], [], PAUSED),
    "a retired job skips later plan_times and parks": (
        history(("10:15", RETIRED)), "10:00", "10:30",
        [], ["missed 10:10", "retired 10:20-10:30 x2 r2"], RETIRED),
}  # fmt: skip


@pytest.mark.parametrize("name", HISTORIES)
def test_states_decide_what_runs_and_whether_the_row_parks(name: str) -> None:
    revisions, cursor, now, ran, skipped, parked = HISTORIES[name]
    answer = planned(cursor, now, revisions)
    assert (runs(answer), skips(answer)) == (ran, skipped)
    assert answer.parked == (None if parked is None else Parked(parked.value))
    assert (answer.next_due_at is None) is (parked is not None)


def test_a_pause_with_an_end_is_over_at_its_end() -> None:
    first = revision(1, "-9 00:00", job(**EACH))
    until = revision(2, "10:05", first.job, PAUSED, until="10:30")
    answer = planned("10:12", "10:42", [first, until])  # its resume is not written yet
    assert (runs(answer), skips(answer)) == (["10:40"], ["paused 10:20-10:30 x2 r2"])
    assert answer.next_due_at == at("10:50")


def test_retirements_that_overlap_because_the_clock_went_back_count_as_one() -> None:
    gone = [Retirement(at("10:15"), at("10:45")), Retirement(at("10:25"), at("10:35"))]
    answer = planned("10:00", "10:55", job(**EACH), retirements=gone)
    assert skips(answer) == ["retired 10:20-10:40 x3"]
    assert runs(answer) == ["10:10", "10:50"]


# --- schedules that cannot be read ---------------------------------------------------------------


def test_a_broken_schedule_parks_before_its_segment_and_fires_nothing_once_corrected() -> None:
    revisions = [
        revision(1, "-9 00:00", job(**EACH)),
        revision(2, "10:15", job("61 * * * *", **EACH)),
    ]
    answer = planned("09:55", "10:40", revisions)
    assert runs(answer) == ["10:00", "10:10"]
    assert (answer.parked, say(answer.planned_through)) == (Parked.SPEC_ERROR, "10:15")
    assert answer.spec_error is not None
    assert "61" in answer.spec_error
    assert answer.planned_revision == 2

    corrected = [*revisions[1:], revision(3, "10:45", job("@every 10m", **EACH))]
    answer = planned("10:15", "10:55", corrected)
    assert (runs(answer), answer.spec_error, answer.parked) == (["10:50"], None, None)
    assert answer.planned_revision == 3


@pytest.mark.parametrize(
    ("policies", "ran", "skipped"),
    [
        ({"catch_up": "latest"}, ["10:20"], [("superseded", 2), ("missed", 2)]),
        ({"catch_up": "all", "catch_up_limit": 2, "overlap": "allow"}, ["10:10", "10:20"],
         [("missed", 1), ("missed", 2)]),
        ({"catch_up": "skip"}, [], [("missed", 3), ("missed", 2)]),
    ],
)  # fmt: skip
def test_what_an_invalid_definition_owns_is_missed_and_counts_for_nothing(
    policies: dict[str, Any], ran: list[str], skipped: list[tuple[str, int]]
) -> None:
    revisions = [
        revision(1, "-9 00:00", job(**policies)),
        replace(revision(2, "10:25", job(**policies)), broken=True),
        revision(3, "10:45", job(**policies)),
    ]
    answer = planned("09:55", "10:46", revisions)
    assert (runs(answer), answer.parked) == (ran, None)
    assert [(skip.reason, skip.count) for skip in answer.skips] == skipped


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"timezone": "Mars/Olympus"}, "Mars/Olympus"),
        ({"schedule_delay": timedelta(days=9_000_000)}, "schedule_delay"),
    ],
)
def test_an_invalid_definition_parks_with_spec_error(fields: dict[str, Any], named: str) -> None:
    answer = planned("09:55", "10:40", job("*/10 * * * *", **fields))
    assert answer.parked is Parked.SPEC_ERROR
    assert named in str(answer.spec_error)
    assert answer.planned_through == at("09:55")


@pytest.mark.parametrize("now", ["10:12", "10:20"])
def test_a_planned_skip_may_be_due_after_an_edit_to_an_invalid_schedule(now: str) -> None:
    revisions = [
        revision(1, "-9 00:00", job(schedule_delay="15m")),
        revision(2, "10:12", job("61 * * * *")),
    ]
    planned_skips = [PlannedSkip(at("10:10"), at("10:10"), "stock")]
    answer = planned("10:05", now, revisions, planned_skips=planned_skips)
    assert "61" in str(answer.spec_error)
    assert (answer.next_plan_time, say(answer.next_due_at)) == (None, "10:25")


def test_a_retired_job_needs_no_readable_schedule() -> None:
    answer = planned("09:55", "10:40", [revision(1, "09:00", job("61 * * * *"), RETIRED)])
    assert answer.parked is Parked.RETIRED


# --- jitter --------------------------------------------------------------------------------------


def test_jitter_never_changes_between_releases() -> None:
    spread = job("@every 1m", jitter="40s")
    assert say(due_at(spread, KEY, at("10:00"))) == "10:00:39.892453"
    other = KEY._replace(scope_kind="tenant", scope_id="b")
    assert say(due_at(spread, other, at("10:00"))) == "10:00:36.416565"

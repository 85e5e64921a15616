"""Edits, pauses, retirements, jitter, and schedules that cannot be read."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cronledger.rules.model import JobState, Parked, Retirement, Revision, ScheduleRow
from cronledger.rules.planner import due_at, plan
from tests.unit.support.planning import (
    DAY,
    KEY,
    ROOMY,
    at,
    job,
    planned,
    revision,
    runs,
    say,
    skips,
)

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


def test_plan_times_up_to_an_edit_belong_to_the_old_revision() -> None:
    revisions = [
        revision(1, "-9 00:00", job("@every 10m", **EACH)),
        revision(2, "10:20", job("@every 15m", **EACH)),
    ]
    answer = planned("09:55", "10:50", revisions)

    assert runs(answer) == ["10:00", "10:10", "10:20", "10:30", "10:45"]
    assert [run.revision.revision for run in answer.runs] == [1, 1, 1, 2, 2]
    assert answer.planned_revision == 2
    assert answer.next_due_at == at("11:00")


def test_an_edit_never_fires_the_past() -> None:
    revisions = [
        revision(1, "-9 00:00", job("0 12 * * *", **EACH)),
        revision(2, "10:05", job("@every 10m", **EACH)),
    ]
    assert runs(planned("09:00", "10:10", revisions)) == ["10:10"]


def test_the_policies_in_force_decide_for_all_that_is_due() -> None:
    revisions = [
        revision(1, "-9 00:00", job(catch_up="all", overlap="wait")),
        revision(2, "10:25", job(catch_up="skip", overlap="allow")),
    ]
    answer = planned("09:55", "10:30:10", revisions)
    assert (runs(answer), skips(answer)) == (["10:30"], ["missed 10:00-10:20 x3"])


def test_a_plan_time_that_an_old_delay_holds_back_holds_back_cursor_and_revision() -> None:
    revisions = [
        revision(1, "-9 00:00", job("@every 10m", schedule_delay="9m", **EACH)),
        revision(2, "10:02", job("@every 1m", **EACH)),
    ]
    waits = planned("09:55", "10:06", revisions)
    assert (runs(waits), say(waits.planned_through)) == ([], "09:59:59.999999")
    assert (waits.planned_revision, waits.next_due_at) == (1, at("10:09"))

    later = planned("09:59:59.999999", "10:09", revisions)
    assert runs(later)[:2] == ["10:00", "10:03"]
    assert len(later.runs) == 8
    assert later.planned_revision == 2


def test_a_revision_without_a_schedule_has_no_plan_times() -> None:
    revisions = [
        revision(1, "-9 00:00", job(**EACH)),
        revision(2, "10:05", job(None, **EACH)),
        revision(3, "10:35", job(**EACH)),
    ]
    assert runs(planned("09:55", "10:41", revisions)) == ["10:00", "10:40"]
    between = planned("09:55", "10:30", revisions)
    assert (runs(between), between.parked) == (["10:00"], None)
    assert between.next_due_at == at("10:35")  # revision 3 is known and yet to come into force


def test_the_later_of_two_edits_holds_if_the_clock_went_back_between_them() -> None:
    revisions = [
        revision(1, "-9 00:00", job("@every 10m", **EACH)),
        revision(2, "10:30", job(None, **EACH)),
        revision(3, "10:15", job("@every 5m", **EACH)),
    ]
    answer = planned("09:55", "10:30", revisions)
    assert runs(answer) == ["10:00", "10:10", "10:20", "10:25", "10:30"]
    assert answer.planned_revision == 3


def test_the_search_for_the_newest_ends_at_a_plan_time_that_is_not_due() -> None:
    """A long delay of one revision stands between what is due before it and after it."""
    policies: dict[str, Any] = EACH | {"catch_up_limit": 2}
    revisions = [
        revision(1, "-9 00:00", job(**policies)),
        revision(2, "10:35", job(schedule_delay="2h", **policies)),
        revision(3, "10:45", job(**policies)),
    ]
    first = planned("09:55", "11:25", revisions, step=2)
    assert (runs(first), skips(first)) == ([], ["missed 10:00-10:10 x2"])
    second = planned("10:10", "11:25", revisions, step=2)
    assert runs(second) == ["10:20", "10:30"]
    assert (second.next_plan_time, second.next_due_at) == (at("10:40"), at("12:40"))


def test_H_is_drawn_for_each_scope() -> None:
    hashed = revision(1, "-9 00:00", job("H H * * *"))
    scopes = [KEY._replace(scope_kind="tenant", scope_id=str(n)) for n in range(6)]
    rows = [ScheduleRow(scope, "default", DAY, 1) for scope in scopes]
    answers = [plan(place, [hashed], DAY, blocker=None, room=ROOMY) for place in rows]
    assert len({answer.next_plan_time for answer in answers}) == 6


# --- pauses --------------------------------------------------------------------------------------


def test_a_plan_time_due_in_a_pause_is_skipped_and_the_row_parks() -> None:
    paused = history(("10:05", PAUSED))
    answer = planned("09:55", "10:05", paused)
    assert (runs(answer), answer.parked) == ([], Parked.PAUSED)

    answer = planned("10:00", "10:30", paused)
    assert skips(answer) == ["paused 10:10-10:30 x3 r2"]
    assert (answer.parked, answer.next_due_at) == (Parked.PAUSED, None)
    assert answer.planned_through == at("10:30")


def test_a_resume_never_fires_the_past() -> None:
    revisions = history(("10:05", PAUSED), ("11:00", ACTIVE))
    answer = planned("10:00", "11:10", revisions)
    assert runs(answer) == ["11:10"]
    assert skips(answer) == ["paused 10:10-11:00 x6 r2"]


def test_the_state_at_due_at_decides_not_the_one_at_plan_time() -> None:
    revisions = history(("10:02", PAUSED), ("10:07", ACTIVE), schedule_delay="5m")
    answer = planned("09:55", "10:20", revisions)
    assert skips(answer) == ["paused 10:00"]  # due 10:05; the pause began after its plan_time
    assert runs(answer) == ["10:10"]

    inside = history(("09:58", PAUSED), ("10:03", ACTIVE), schedule_delay="5m")
    assert runs(planned("09:55", "10:09", inside)) == ["10:00"]  # named in it, due after it


def test_a_pause_keeps_the_plan_times_that_were_due_before_it() -> None:
    revisions = history(("10:05", PAUSED))
    held = planned("09:55", "10:30", revisions)
    assert (runs(held), skips(held)) == ([], [])
    assert (held.parked, held.next_plan_time) == (Parked.PAUSED, at("10:00"))
    assert say(held.planned_through) == "09:59:59.999999"

    resumed = [*revisions, revision(3, "10:32", revisions[0].job)]
    answer = planned("09:59:59.999999", "10:33", resumed)
    assert (runs(answer), skips(answer)) == (["10:00"], ["paused 10:10-10:30 x3 r2"])


def test_a_pause_with_an_end_is_over_at_its_end() -> None:
    first = revision(1, "-9 00:00", job(**EACH))
    until = revision(2, "10:05", first.job, PAUSED, until="10:30")
    during = planned("10:00", "10:12", [first, until])
    assert (skips(during), during.parked) == (["paused 10:10 r2"], Parked.PAUSED)

    # The resume is not written yet, or is written later, or dated back to the end: all the same.
    resumes = [[], [revision(3, "10:41", first.job)], [revision(3, "10:30", first.job)]]
    for resume in resumes:
        answer = planned("10:12", "10:42", [first, until, *resume])
        assert (runs(answer), skips(answer)) == (["10:40"], ["paused 10:20-10:30 x2 r2"])
        assert answer.next_due_at == at("10:50")


# --- retirements ---------------------------------------------------------------------------------


def test_a_retired_job_skips_later_plan_times_and_parks() -> None:
    answer = planned("10:00", "10:30", history(("10:15", RETIRED)))
    assert skips(answer) == ["missed 10:10", "retired 10:20-10:30 x2 r2"]
    assert answer.parked is Parked.RETIRED


def test_a_job_that_returns_starts_from_then() -> None:
    answer = planned("10:00", "10:40", history(("10:15", RETIRED), ("10:35", ACTIVE)))
    assert runs(answer) == ["10:40"]
    assert skips(answer) == ["missed 10:10", "retired 10:20-10:30 x2 r2"]


def test_a_retired_scope_and_its_return() -> None:
    answer = planned("10:00", "10:35", job(**EACH), retirements=[Retirement(at("10:15"), None)])
    assert skips(answer) == ["missed 10:10", "retired 10:20-10:30 x2"]
    assert answer.parked is Parked.RETIRED

    fields: dict[str, Any] = {"retirements": [Retirement(at("10:15"), at("10:40"))]}
    back = planned("10:35", "10:50", job(**EACH), **fields)
    assert (skips(back), runs(back)) == (["retired 10:40"], ["10:50"])
    assert back.next_due_at == at("11:00")


def test_retirements_that_overlap_because_the_clock_went_back_count_as_one() -> None:
    gone = [Retirement(at("10:15"), at("10:45")), Retirement(at("10:25"), at("10:35"))]
    answer = planned("10:00", "10:55", job(**EACH), retirements=gone)
    assert skips(answer) == ["retired 10:20-10:40 x3"]
    assert runs(answer) == ["10:10", "10:50"]


def test_plan_times_due_before_a_retirement_of_the_job_are_missed() -> None:
    revisions = history(("10:25", RETIRED), ("10:26", ACTIVE), catch_up="latest")
    answer = planned("10:00", "10:50:30", revisions)
    assert (runs(answer), skips(answer)) == (
        ["10:50"],
        ["missed 10:10-10:20 x2", "superseded 10:30-10:40 x2 r3"],
    )


# --- schedules that cannot be read ---------------------------------------------------------------


def test_a_broken_schedule_parks_before_its_segment() -> None:
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

    again = planned("10:15", "10:50", revisions[1:])
    assert (again.parked, again.planned_through) == (Parked.SPEC_ERROR, at("10:15"))


def test_a_corrected_schedule_fires_and_the_broken_one_fired_nothing() -> None:
    revisions = [
        revision(2, "10:15", job("61 * * * *", **EACH)),
        revision(3, "10:45", job("@every 10m", **EACH)),
    ]
    answer = planned("10:15", "10:55", revisions)
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
        ({"jitter": timedelta(days=999_999_999)}, "jitter"),
    ],
)
def test_an_invalid_definition_parks_with_spec_error(fields: dict[str, Any], named: str) -> None:
    answer = planned("09:55", "10:40", job("*/10 * * * *", **fields))
    assert answer.parked is Parked.SPEC_ERROR
    assert named in str(answer.spec_error)
    assert answer.planned_through == at("09:55")


def test_a_retired_job_needs_no_readable_schedule() -> None:
    answer = planned("09:55", "10:40", [revision(1, "09:00", job("61 * * * *"), RETIRED)])
    assert answer.parked is Parked.RETIRED


# --- jitter --------------------------------------------------------------------------------------


def test_jitter_is_a_fixed_share_below_its_bound() -> None:
    spread = job("@every 1m", jitter="40s", schedule_delay="5s")
    shares = [
        due_at(spread, KEY, DAY + timedelta(minutes=n)) - DAY - timedelta(minutes=n, seconds=5)
        for n in range(400)
    ]
    assert all(timedelta(0) <= share < timedelta(seconds=40) for share in shares)
    assert len(set(shares)) > 390
    assert timedelta(seconds=18) < sum(shares, timedelta(0)) / 400 < timedelta(seconds=22)


def test_jitter_never_changes_between_releases() -> None:
    spread = job("@every 1m", jitter="40s")
    assert say(due_at(spread, KEY, at("10:00"))) == "10:00:39.892453"
    other = KEY._replace(scope_kind="tenant", scope_id="b")
    assert say(due_at(spread, other, at("10:00"))) == "10:00:36.416565"
    assert due_at(job("@every 1m"), KEY, at("10:00")) == at("10:00")

"""Planned skips in the planner: which plan_times they contain, and what the policies see."""

from datetime import timedelta
from typing import Any

import pytest

from cronledger.rules.plans import PlannedSkip
from tests.unit.support.planning import at, job, planned, reading_ahead, revision, runs, say, skips


def skip(first: str, last: str, reason: str = "moved") -> PlannedSkip:
    return PlannedSkip(at(first), at(last), reason)


EVERY: dict[str, Any] = {
    "catch_up": "all",
    "overlap": "allow",
    "catch_up_window": timedelta(days=9),
}


def test_a_planned_skip_contains_its_first_and_its_last_plan_time() -> None:
    answer = planned("09:00", "10:05", job(**EVERY), planned_skips=[skip("09:20", "09:40")])
    assert runs(answer) == ["09:10", "09:50", "10:00"]
    assert skips(answer) == ["operator 09:20-09:40 x3"]
    assert answer.skips[0].detail == "moved"
    assert answer.first_settled == at("09:10")


def test_a_schedule_that_cannot_run_is_not_overdue_from_a_skip_that_somebody_decided() -> None:
    answer = planned("09:00", "10:05", job(), planned_skips=[skip("09:10", "09:20")])
    assert skips(answer) == ["operator 09:10-09:20 x2", "superseded 09:30-09:50 x3"]
    assert answer.first_settled == at("09:30")


def test_of_planned_skips_that_overlap_the_first_one_has_the_common_plan_times() -> None:
    covers = [skip("09:10", "09:30", "a"), skip("09:20", "09:40", "b"), skip("09:25", "09:30", "c")]
    answer = planned("09:00", "09:55", job(**EVERY), planned_skips=covers)
    assert [(one.detail, one.count) for one in answer.skips] == [("a", 3), ("b", 1)]
    assert runs(answer) == ["09:50"]


@pytest.mark.parametrize("ahead", [1, 32])
def test_a_limit_of_catch_up_counts_only_what_is_not_skipped(ahead: int) -> None:
    policy = job(**EVERY, catch_up_limit=3, grace=timedelta(0))
    with reading_ahead(ahead):
        answer = planned("09:00", "10:05", policy, planned_skips=[skip("09:40", "09:50")])
    assert runs(answer) == ["09:20", "09:30", "10:00"]
    assert skips(answer) == ["missed 09:10", "operator 09:40-09:50 x2"]


def test_the_plan_time_after_a_skipped_one_may_be_of_an_earlier_revision() -> None:
    """The next one of the revision in force is at 10:00."""
    hour = timedelta(hours=1)
    edited = [
        revision(1, "-9 00:00", job(schedule_delay=hour)),
        revision(2, "09:30", job("0 * * * *", schedule_delay=hour)),
    ]
    answer = planned("09:00", "09:40", edited, planned_skips=[skip("09:10", "09:10")])
    assert (say(answer.next_due_at), say(answer.next_plan_time)) == ("10:10", "09:20")

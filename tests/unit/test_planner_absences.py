"""Absences of hosts in the planner: a plan_time whose grace ends in one is `host_absent`."""

from datetime import timedelta
from typing import Any

import pytest

from cronledger.rules.plans import Absence
from tests.unit.support.planning import at, job, planned, runs, skips

EVERY: dict[str, Any] = {
    "catch_up": "all", "overlap": "allow", "catch_up_window": timedelta(days=9),
    "grace": timedelta(minutes=5),
}  # fmt: skip


@pytest.mark.parametrize(
    ("start", "end", "absent"),
    [
        ("09:05", "09:35", ["host_absent 09:10-09:20 x2"]),  # the grace of 09:30 ends at its end
        ("09:05", "09:35:00.000001", ["host_absent 09:10-09:30 x3"]),
        ("09:10", "09:29", ["host_absent 09:20"]),  # at 09:10 the host was present
        ("09:11", "09:25", []),
    ],
)
def test_a_host_is_absent_from_the_due_at_to_the_end_of_grace(
    start: str, end: str, absent: list[str]
) -> None:
    gone = [Absence(at(start), at(end))]
    answer = planned("09:00", "09:55", job(**EVERY), absences=gone)
    assert skips(answer) == absent
    assert len(runs(answer)) == 5 - sum(one.count for one in answer.skips)


def test_while_its_host_is_away_nothing_starts() -> None:
    gone = [Absence(at("09:25"), at("10:00"))]
    job_of_host = job(catch_up="all", overlap="wait", grace=timedelta(minutes=5))
    answer = planned("09:00", "09:50", job_of_host, absences=gone, away=True, blocker=7)
    assert skips(answer) == ["missed 09:10-09:20 x2", "host_absent 09:30-09:50 x3"]
    assert runs(answer) == []
    assert answer.planned_through == at("09:50")

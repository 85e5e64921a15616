"""What policies mean, sentence by sentence: grace, catch_up, overlap, limits, and where rows park.

Unless said otherwise the job fires every ten minutes with the defaults: grace 60 s, catch_up
latest within a day, overlap skip. `test_planner_properties` has all combinations of them.
"""

from datetime import datetime
from typing import Any

import pytest

from cronledger.rules.model import Parked
from cronledger.rules.planner import Room
from tests.unit.support.planning import TICK, at, job, planned, runs, say, skips

SKIPPED, LATEST, ALL = ({"catch_up": c, "overlap": "allow"} for c in ("skip", "latest", "all"))
CATCH_UP: dict[str, tuple[dict[str, Any], str, list[str], list[str]]] = {
    "skip records what is past grace": (SKIPPED, "10:01:00.000001", [], ["missed 10:00"]),
    "skip runs the newest on time": (SKIPPED, "10:20:30", ["10:20"], ["missed 10:00-10:10 x2"]),
    "latest, nothing on time": (LATEST, "10:25", ["10:20"], ["superseded 10:00-10:10 x2"]),
    "latest within a day": (LATEST | {"schedule": "0 10 4 3 *"}, "+1 10:00", ["10:00"], []),
    "latest, past its window": (
        LATEST | {"catch_up_window": "4m"}, "10:25", [], ["missed 10:00-10:20 x3"]),
    "all, oldest first": (ALL, "10:25", ["10:00", "10:10", "10:20"], []),
    "the one on time does not count against the limit": (
        ALL | {"catch_up_limit": 1}, "10:20:30", ["10:10", "10:20"], ["missed 10:00"]),
    "the window counts from due_at": (
        ALL | {"catch_up_window": "12m", "schedule_delay": "4m"}, "10:34:30",
        ["10:20", "10:30"], ["missed 10:00-10:10 x2"]),
}  # fmt: skip


# A success has processed the plan_times up to 10:20. overlap is allow: a step has several runs.
WINDOWS: dict[str, tuple[dict[str, Any], str, list[str], list[str]]] = {
    "a plan_time that is processed is superseded": (
        SKIPPED | {"grace": "1h"}, "10:30", ["10:30"], ["superseded 10:00-10:20 x3"]),
    "those that are processed do not count against the limit": (
        ALL | {"catch_up_limit": 2}, "10:45", ["10:30", "10:40"], ["superseded 10:00-10:20 x3"]),
    "one that is processed has no other reason": (
        ALL | {"catch_up_window": "12m"}, "10:55", ["10:50"],
        ["superseded 10:00-10:20 x3", "missed 10:30-10:40 x2"]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("policies", "now", "run", "skipped", "window_start"),
    [(*case, None) for case in CATCH_UP.values()] + [(*x, at("10:20")) for x in WINDOWS.values()],
    ids=[*CATCH_UP, *WINDOWS],
)
def test_catch_up_and_the_window_of_a_success_decide_about_missed_plan_times(
    policies: dict[str, Any], now: str, run: list[str], skipped: list[str],
    window_start: datetime | None,
) -> None:  # fmt: skip
    answer = planned("09:55", now, job(**policies), window_start=window_start)

    assert (runs(answer), skips(answer)) == (run, skipped)
    assert answer.planned_through == at(now)
    assert answer.parked is None


QUEUE = {"overlap": "wait", "catch_up": "all"}
WITHIN = {"starts_at": at("10:00"), "ends_at": at("10:20")}
DELAYED = {"schedule_delay": "3m", "catch_up": "skip"}
BUSY: dict[str, Any] = {"blocker": 7}
WAITING, LIMIT = Parked.WAITING, Parked.LIMIT
Where = tuple[str | None, str | None, Parked | None]  # cursor, next_due_at, parked
STEPS: dict[str, tuple[dict[str, Any], str, dict[str, Any], list[str], list[str], Where]] = {
    "nothing starts before its instant": (
        {}, "09:59:59.999999", {}, [], [], ("09:59:59.999999", "10:00", None)),
    "a due plan_time runs and the row waits for the next": (
        {}, "10:00", {}, ["10:00"], [], ("10:00", "10:10", None)),
    "overlap skip records the blocking execution": (
        {}, "10:20:30", BUSY, [], ["overlap 10:00-10:20 x3 by 7"], ("10:20:30", "10:30", None)),
    "catch_up skip takes precedence over overlap skip": (
        {"catch_up": "skip"}, "10:20:30", BUSY, [],
        ["missed 10:00-10:10 x2", "overlap 10:20 by 7"], ("10:20:30", "10:30", None)),
    "overlap wait with catch_up all is a queue": (
        QUEUE, "10:20:30", {}, ["10:00"], [], ("10:09:59.999999", None, WAITING)),
    "overlap replace waits for the end that it requests": (
        {"overlap": "replace"}, "10:00", BUSY, [], [], ("09:59:59.999999", None, WAITING)),
    "overlap allow runs beside a running execution": (
        ALL, "10:25", BUSY, ["10:00", "10:10", "10:20"], [], ("10:25", "10:30", None)),
    "the limit of a job waits": (
        {}, "10:20:30", {"room": Room(5, 0, None)}, [], ["superseded 10:00-10:10 x2"],
        ("10:19:59.999999", None, LIMIT)),
    "the limit of a queue waits, without a free slot too": (
        {}, "10:00", {"room": Room(0, None, 0)}, [], [], ("09:59:59.999999", None, LIMIT)),
    "a limit is used up by the runs of the step itself": (
        ALL, "10:25", {"room": Room(5, 2, None)}, ["10:00", "10:10"], [],
        ("10:19:59.999999", None, LIMIT)),
    "without slots the row stays due": (
        ALL, "10:25", {"room": Room(1, 9, 9)}, ["10:00"], [], ("10:09:59.999999", "10:10", None)),
    "starts_at and ends_at bound plan_times inclusively": (
        ALL | WITHIN, "11:00", {}, ["10:00", "10:10", "10:20"], [], ("11:00", None, Parked.ENDED)),
    "a job without a schedule is unscheduled": (
        {"schedule": None}, "10:25", {}, [], [], ("10:25", None, Parked.UNSCHEDULED)),
    "grace begins after the delay": (DELAYED, "10:04", {}, ["10:00"], [], ("10:04", "10:13", None)),
    "the bound on a step leaves the row due": (
        {}, "11:00:30", {"step": 4}, [], ["superseded 10:00-10:30 x4"], ("10:30", "10:40", None)),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_step_starts_what_it_may_and_the_row_parks_or_waits(name: str) -> None:
    policies, now, given, run, skipped, where = STEPS[name]
    answer = planned("09:55", now, job(**policies), **given)

    assert (runs(answer), skips(answer)) == (run, skipped)
    assert (say(answer.planned_through), say(answer.next_due_at), answer.parked) == where
    assert answer.replaces is (policies.get("overlap") == "replace" and where[2] is WAITING)
    if answer.planned_through.microsecond == 999_999:
        assert answer.next_plan_time == answer.planned_through + TICK

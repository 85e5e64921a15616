"""What policies mean, sentence by sentence: grace, catch_up, overlap, limits, and where rows park.

Unless said otherwise the job fires every ten minutes with the defaults: grace 60 s, catch_up
latest within a day, overlap skip.
"""

from typing import Any

import pytest

from cronledger.rules.model import Parked, Plan
from cronledger.rules.planner import Room, plan
from tests.unit.support.planning import at, job, planned, row, runs, say, skips


def where(answer: Plan) -> tuple[str | None, str | None, str | None]:
    """Cursor, next_due_at and parked; the first two as text."""
    assert (answer.next_due_at is None) is (answer.parked is not None)
    return say(answer.planned_through), say(answer.next_due_at), answer.parked


def test_a_due_plan_time_runs_and_the_row_waits_for_the_next() -> None:
    answer = planned("09:55", "10:00:00.25", job())

    assert runs(answer) == ["10:00"]
    assert skips(answer) == []
    assert where(answer) == ("10:00:00.25", "10:10", None)
    assert answer.next_plan_time == at("10:10")
    assert answer.settled == 1


def test_nothing_starts_before_its_instant() -> None:
    early = planned("09:55", "09:59:59.999999", job())
    assert (runs(early), where(early)) == ([], ("09:59:59.999999", "10:00", None))
    assert runs(planned("09:55", "10:00", job())) == ["10:00"]


def test_the_cursor_itself_is_settled() -> None:
    assert runs(planned("10:00", "10:00:01", job())) == []


@pytest.mark.parametrize("catch_up", ["skip", "latest", "all"])
@pytest.mark.parametrize("now", ["10:00", "10:01"])
def test_the_newest_within_grace_always_runs(catch_up: str, now: str) -> None:
    answer = planned("09:55", now, job(catch_up=catch_up, catch_up_window="0s"))
    assert runs(answer) == ["10:00"]


SKIPPED, LATEST, ALL = ({"catch_up": c, "overlap": "allow"} for c in ("skip", "latest", "all"))
CATCH_UP: dict[str, tuple[dict[str, Any], str, list[str], list[str]]] = {
    "skip records what is past grace": (SKIPPED, "10:01:00.000001", [], ["missed 10:00"]),
    "skip runs the newest on time": (SKIPPED, "10:20:30", ["10:20"], ["missed 10:00-10:10 x2"]),
    "skip, nothing on time": (SKIPPED, "10:25", [], ["missed 10:00-10:20 x3"]),
    "latest past grace": (LATEST, "10:05", ["10:00"], []),
    "latest on time": (LATEST, "10:20:30", ["10:20"], ["superseded 10:00-10:10 x2"]),
    "latest, nothing on time": (LATEST, "10:25", ["10:20"], ["superseded 10:00-10:10 x2"]),
    "latest, past its window": (
        LATEST | {"catch_up_window": "4m"}, "10:25", [], ["missed 10:00-10:20 x3"]),
    "latest, only the newest within the window": (
        LATEST | {"catch_up_window": "5m"}, "10:25", ["10:20"], ["superseded 10:00-10:10 x2"]),
    "all, oldest first": (ALL, "10:25", ["10:00", "10:10", "10:20"], []),
    "all and the one on time": (ALL, "10:20:30", ["10:00", "10:10", "10:20"], []),
    "all, the newest within the limit": (
        ALL | {"catch_up_limit": 2}, "10:35", ["10:20", "10:30"], ["missed 10:00-10:10 x2"]),
    "the one on time does not count against the limit": (
        ALL | {"catch_up_limit": 1}, "10:20:30", ["10:10", "10:20"], ["missed 10:00"]),
    "all, within the window": (
        ALL | {"catch_up_window": "15m"}, "10:25", ["10:10", "10:20"], ["missed 10:00"]),
    "the window counts from due_at": (
        ALL | {"catch_up_window": "12m", "schedule_delay": "4m"}, "10:34:30",
        ["10:20", "10:30"], ["missed 10:00-10:10 x2"]),
    "two within a long grace: the older one was missed": (
        SKIPPED | {"grace": "1h"}, "10:12", ["10:10"], ["missed 10:00"]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("policies", "now", "run", "skipped"), CATCH_UP.values(), ids=CATCH_UP.keys()
)
def test_catch_up_decides_about_missed_plan_times(
    policies: dict[str, Any], now: str, run: list[str], skipped: list[str]
) -> None:
    answer = planned("09:55", now, job(**policies))

    assert (runs(answer), skips(answer)) == (run, skipped)
    assert answer.planned_through == at(now)
    assert answer.parked is None


def test_a_day_within_the_window_and_a_microsecond_more() -> None:
    yearly = job("0 10 4 3 *")
    assert runs(planned("09:55", "+1 10:00", yearly)) == ["10:00"]
    late = planned("09:55", "+1 10:00:00.000001", yearly)
    assert (runs(late), skips(late)) == ([], ["missed 10:00"])


def test_overlap_skip_records_the_blocking_execution() -> None:
    answer = planned("09:55", "10:20:30", job(), blocker=7)

    assert runs(answer) == []
    assert skips(answer) == ["overlap 10:00-10:20 x3 by 7"]
    assert where(answer) == ("10:20:30", "10:30", None)


def test_catch_up_skip_takes_precedence_over_overlap_skip() -> None:
    answer = planned("09:55", "10:20:30", job(catch_up="skip"), blocker=7)
    assert skips(answer) == ["missed 10:00-10:10 x2", "overlap 10:20 by 7"]


def test_overlap_wait_parks_before_the_waiting_plan_time() -> None:
    answer = planned("09:55", "10:00", job(overlap="wait"), blocker=7)

    assert (runs(answer), skips(answer)) == ([], [])
    assert where(answer) == ("09:59:59.999999", None, Parked.WAITING)
    assert answer.next_plan_time == at("10:00")
    assert not answer.replaces


def test_overlap_wait_with_catch_up_latest_buffers_one() -> None:
    waiting = job(overlap="wait")
    parked = planned("09:55", "10:20:30", waiting, blocker=7)
    assert skips(parked) == ["superseded 10:00-10:10 x2"]
    assert (parked.parked, parked.next_plan_time) == (Parked.WAITING, at("10:20"))

    freed = planned("10:19:59.999999", "10:27", waiting)
    assert (runs(freed), skips(freed)) == (["10:20"], [])


def test_overlap_wait_with_catch_up_all_is_a_queue() -> None:
    queue = job(overlap="wait", catch_up="all")
    first = planned("09:55", "10:20:30", queue)
    assert runs(first) == ["10:00"]
    assert where(first) == ("10:09:59.999999", None, Parked.WAITING)
    assert first.next_plan_time == at("10:10")

    second = planned("10:09:59.999999", "10:24", queue)
    assert runs(second) == ["10:10"]
    last = planned("10:19:59.999999", "10:25", queue)
    assert (runs(last), where(last)) == (["10:20"], ("10:25", "10:30", None))


def test_overlap_replace_requests_the_end_of_the_running_execution_and_waits() -> None:
    answer = planned("09:55", "10:00", job(overlap="replace"), blocker=7)

    assert answer.replaces
    assert where(answer) == ("09:59:59.999999", None, Parked.WAITING)
    freed = planned("09:59:59.999999", "10:00:20", job(overlap="replace"))
    assert (runs(freed), freed.replaces) == (["10:00"], False)


def test_overlap_replace_with_catch_up_all_replaces_its_own_catch_up() -> None:
    both = job(overlap="replace", catch_up="all")
    first = planned("09:55", "10:20:30", both)
    assert (runs(first), where(first)) == (["10:00"], ("10:09:59.999999", "10:10", None))
    again = planned("10:09:59.999999", "10:20:30", both, blocker=7)
    assert (again.replaces, again.parked) == (True, Parked.WAITING)


def test_overlap_allow_runs_beside_a_running_execution() -> None:
    answer = planned("09:55", "10:25", job(overlap="allow", catch_up="all"), blocker=7)
    assert runs(answer) == ["10:00", "10:10", "10:20"]


@pytest.mark.parametrize("overlap", ["skip", "wait", "replace", "allow"])
@pytest.mark.parametrize("room", [Room(5, 0, None), Room(5, None, 0), Room(0, 0, 5)])
def test_limits_always_wait(overlap: str, room: Room) -> None:
    answer = planned("09:55", "10:20:30", job(overlap=overlap), room=room)

    assert (runs(answer), skips(answer)) == ([], ["superseded 10:00-10:10 x2"])
    assert where(answer) == ("10:19:59.999999", None, Parked.LIMIT)
    assert answer.next_plan_time == at("10:20")


def test_a_limit_is_used_up_by_the_runs_of_the_step_itself() -> None:
    answer = planned("09:55", "10:25", job(overlap="allow", catch_up="all"), room=Room(5, 2, None))
    assert runs(answer) == ["10:00", "10:10"]
    assert where(answer) == ("10:19:59.999999", None, Parked.LIMIT)


def test_without_slots_the_row_stays_due() -> None:
    answer = planned("09:55", "10:25", job(overlap="allow", catch_up="all"), room=Room(1, 9, 9))
    assert runs(answer) == ["10:00"]
    assert where(answer) == ("10:09:59.999999", "10:10", None)


def test_plan_times_without_slots_are_caught_up_like_an_outage() -> None:
    short = planned("09:55", "10:00", job(), room=Room(0, None, None))
    assert where(short) == ("09:59:59.999999", "10:00", None)
    later = planned("09:59:59.999999", "10:10:05", job())
    assert (runs(later), skips(later)) == (["10:10"], ["superseded 10:00"])


def test_starts_at_and_ends_at_bound_plan_times_inclusively() -> None:
    bounded = job(overlap="allow", catch_up="all", starts_at=at("10:00"), ends_at=at("10:20"))

    answer = planned("09:00", "11:00", bounded)
    assert runs(answer) == ["10:00", "10:10", "10:20"]
    assert where(answer) == ("11:00", None, Parked.ENDED)
    before = planned("08:00", "08:55", bounded)
    assert where(before) == ("08:55", "10:00", None)


def test_a_job_without_a_schedule_is_unscheduled() -> None:
    answer = planned("09:55", "10:25", job(None))
    assert where(answer) == ("10:25", None, Parked.UNSCHEDULED)
    assert answer.settled == 0


def test_delay_moves_the_start_and_not_the_plan_time() -> None:
    delayed = job(schedule_delay="3m", grace="60s", catch_up="skip")
    early = planned("09:55", "10:02:59", delayed)
    assert where(early) == ("09:59:59.999999", "10:03", None)
    assert early.next_plan_time == at("10:00")

    answer = planned("09:55", "10:04", delayed)
    assert runs(answer) == ["10:00"]
    assert answer.runs[0].due_at == at("10:03")
    assert where(answer) == ("10:04", "10:13", None)
    assert skips(planned("09:55", "10:04:00.000001", delayed)) == ["missed 10:00"]


def test_the_bound_on_a_step_leaves_the_row_due() -> None:
    first = planned("09:55", "11:00:30", job(), step=4)
    assert skips(first) == ["superseded 10:00-10:30 x4"]
    assert where(first) == ("10:30", "10:40", None)
    assert first.settled == 4
    second = planned("10:30", "11:00:30", job(), step=4)
    assert (runs(second), skips(second)) == (["11:00"], ["superseded 10:40-10:50 x2"])
    assert where(second) == ("11:00:30", "11:10", None)


def test_without_a_revision_there_is_nothing_to_plan_by() -> None:
    with pytest.raises(ValueError, match="no revision of"):
        plan(row("09:55"), [], at("10:00"), blocker=None, room=Room(1, None, None))

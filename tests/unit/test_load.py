"""The load to come: executions at once, minute by minute, and seconds in which too many are due."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronledger.rules.load import MINUTES, MOST_STARTS, SAMPLE, Planned, collisions, load
from cronledger.rules.model import GLOBAL, Handler, Job, Overlap
from cronledger.web.drawing.load import draw_load

NOON = datetime(2027, 6, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
NOW = datetime(2026, 6, 1, 12, 0, 20, tzinfo=UTC)


def planned(
    name: str, schedule: str, seconds: float, *, once: bool = True, **columns: Any
) -> Planned:
    overlap = Overlap.SKIP if once else Overlap.ALLOW
    job = Job.model_construct(name=name, schedule=schedule, overlap=overlap, **columns)
    return Planned(job, GLOBAL, seconds)


def test_an_execution_is_in_each_minute_in_which_it_runs() -> None:
    found = load([planned("job", "30 0 13 * * *", 90.0)], NOW)
    assert found.start == NOW.replace(second=0)
    assert [minute for minute, count in enumerate(found.starts) if count] == [60]
    assert found.starts[60] == 1
    # From 13:00:30 to 13:02:00.
    shown = [(minute, value) for minute, value in enumerate(found.running) if value]
    assert shown == [(60, 0.5), (61, 1.0)]


def test_a_scope_that_never_runs_beside_itself_counts_once() -> None:
    one = planned("slow", "* * * * *", 150.0)
    many = planned("slow", "* * * * *", 150.0, once=False)
    assert max(load([one], NOW).running) == 1.0
    assert max(load([many], NOW).running) == 2.5


def test_the_worst_minutes_name_their_scopes() -> None:
    found = load(
        [planned("nightly", "0 2 * * *", 600.0), planned("quick", "* * * * *", 6.0)], NOW, peaks=3
    )
    at = [found.at(peak.minute).strftime("%H:%M") for peak in found.peaks]
    assert at == ["02:00", "02:01", "02:02"]
    assert found.peaks[0].starts == 2
    assert found.peaks[0].running == pytest.approx(1.1)
    assert [share.key.job_name for share in found.peaks[0].shares] == ["nightly", "quick"]
    assert sum(found.starts) == 1 + MINUTES - 1  # the minute of now has begun


def test_delay_and_jitter_move_the_starts() -> None:
    late = planned("late", "0 13 * * *", 60.0, schedule_delay=timedelta(minutes=5))
    assert [m for m, count in enumerate(load([late], NOW).starts) if count] == [65]
    # A plan_time that is past is still to start.
    soon = planned("soon", "0 12 * * *", 60.0, schedule_delay=timedelta(minutes=5))
    assert [m for m, count in enumerate(load([soon], NOW).starts) if count] == [5]


@pytest.mark.long
def test_jobs_that_cannot_be_computed_are_left_out() -> None:
    per_second = [planned(f"job{n}", "* * * * * *", 0.1) for n in range(5)]
    found = load([planned("broken", "61 * * * *", 1.0), *per_second], NOW)
    assert (found.scopes, found.left_out) == (6, 3)
    assert sum(found.starts) <= MOST_STARTS


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 59), st.integers(0, 23), st.floats(0, 90_000)), max_size=6),
    st.booleans(),
)
def test_no_time_is_lost(jobs: list[tuple[int, int, float]], once: bool) -> None:
    """The sum over all minutes is the time that all executions run until the end."""
    start = NOW.replace(second=0)
    end = start + timedelta(days=1)
    expected = 0.0
    made = []
    for number, (minute, hour, seconds) in enumerate(jobs):
        made.append(planned(f"job{number}", f"{minute} {hour} * * *", seconds, once=once))
        at = start.replace(hour=hour, minute=minute)
        at += timedelta(days=at <= NOW)
        if at < end:
            expected += min(seconds, (end - at).total_seconds())
    found = load(made, NOW)
    assert sum(found.running) * 60 == pytest.approx(expected, abs=1e-3)
    assert all(a.running >= b.running for a, b in pairwise(found.peaks))


def test_the_picture_names_the_peak_and_the_slots() -> None:
    found = load([planned("slow", "* * * * *", 150.0, once=False)], NOW)
    text = draw_load(found, 2)
    assert 'aria-label="At most 2.5 executions at once in the next 24 hours' in text
    assert 'class="over"' in text and "2 slots" in text
    assert "style=" not in text
    assert 'class="over"' not in draw_load(found, 3)
    assert 'class="slots"' not in draw_load(found, 1000)  # far above what is drawn
    assert "At most 1.0" in draw_load(load([], NOW), 0)


# -- seconds in which too many executions of a queue are due ------------------------------------


def external(name: str, schedule: str | None = "0 0 * * *", **policies: Any) -> Job:
    values = {"name": name, "schedule": schedule, "handler": Handler.EXTERNAL, **policies}
    return Job.model_validate(values)


def collided(*jobs: Job, most: int = 2) -> list[tuple[str, str, int, int]]:
    return [
        (one.queue, f"{one.instant:%dT%H:%M:%S}", one.count, one.more)
        for one in collisions(jobs, NOON, NOON + DAY, most, {})
    ]


def test_jobs_of_one_queue_that_are_due_in_one_second() -> None:
    three = [external(name) for name in "abc"]
    assert collided(*three) == [("default", "02T00:00:00", 3, 0)]
    assert collided(*three, most=3) == []
    assert collided(external("a"), external("b"), external("c", queue="mail")) == []
    assert collided(external("a"), external("b"), external("c", "1 0 * * *")) == []
    assert collided(external("a"), external("b"), external("c", schedule_delay="1s")) == []
    assert collided(external("a"), external("b"), external("c", None)) == []


def test_the_fullest_second_is_named_and_the_others_are_counted() -> None:
    often = [external(name, "*/20 * * * *") for name in "abc"]
    assert collided(*often, external("d")) == [("default", "02T00:00:00", 4, 71)]
    (collision,) = collisions([*often, external("d")], NOON, NOON + DAY, 2, {})
    assert collision.jobs == ("a", "b", "c", "d")
    assert collided(*often)[0][1] == "01T12:20:00"  # the first of the fullest


def test_each_scope_is_an_execution() -> None:
    scopes = [f"{number}" for number in range(5)]
    many = external("a", scope_kind="tenant", scopes=scopes)
    assert collided(many, most=4) == [("default", "02T00:00:00", 5, 0)]
    assert collided(external("a", scope_kind="tenant", scopes=[]), most=1) == []


@pytest.mark.parametrize("scopes", [60, SAMPLE * 3])
def test_h_and_jitter_spread_scopes(scopes: int) -> None:
    names = [f"{number}" for number in range(scopes)]
    spread: dict[str, Any] = {"scope_kind": "tenant", "scopes": names}
    assert collided(external("a", "H H * * *", **spread), most=scopes // 20) == []
    assert collided(external("a", jitter=f"{scopes}s", **spread), most=1) == []
    assert collided(external("a", jitter=f"{scopes // 10}s", **spread), most=9)[0][2] == 10


def test_a_job_is_due_only_within_its_lifetime() -> None:
    late: dict[str, Any] = {"starts_at": NOON + timedelta(days=2)}
    over: dict[str, Any] = {"ends_at": NOON}
    assert (
        collided(external("a"), external("b"), external("c", **late), external("d", **over)) == []
    )

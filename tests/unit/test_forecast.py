"""The simulation of coming executions, and the forecast that adds them up."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronledger.rules import forecast as rules
from cronledger.rules.calendars import Calendar
from cronledger.rules.forecast import STARTS, Forecast, differences, forecast, suggest
from cronledger.rules.model import (
    GLOBAL,
    CatchUp,
    Handler,
    Job,
    JobState,
    Overlap,
    Revision,
    ScopeKey,
    SkipReason,
)
from cronledger.rules.plans import PlannedSkip
from cronledger.rules.simulation import Simulation
from cronledger.rules.simulation_values import (
    Capacity,
    Cause,
    Executed,
    Outcome,
    Pool,
    Running,
    Series,
    Skipped,
    Unstarted,
)
from cronledger.web.drawing.forecast import draw_forecast

NOW = datetime(2026, 6, 1, 12, 0, 20, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=99)
SECOND, MINUTE, HOUR, DAY = (timedelta(**{x: 1}) for x in ("seconds", "minutes", "hours", "days"))
UNBOUNDED = Capacity([], {})


def series(
    name: str, schedule: str, seconds: float, *, long: float | None = None, scope: str = GLOBAL,
    pauses: tuple[tuple[datetime, datetime], ...] = (), calendar: Calendar | None = None,
    **policies: Any,
) -> Series:  # fmt: skip
    if calendar is not None:
        policies["calendar"] = calendar.name
    job = Job(name=name, schedule=schedule, **{"handler": Handler.COMMAND} | policies)
    revisions = [Revision(0, LONG_AGO, JobState.ACTIVE, job, calendar=calendar)] + [
        Revision(n, start, JobState.PAUSED, job, end, calendar=calendar)
        for n, (start, end) in enumerate(pauses, 1)
    ]
    return Series(
        ScopeKey(name, "global", scope), revisions, NOW, timedelta(seconds=seconds),
        timedelta(seconds=seconds if long is None else long),
    )  # fmt: skip


def slots(count: int, *queues: str) -> Capacity:
    return Capacity([Pool(frozenset(queues or ("default",)), count)], {})


def outcomes(
    *given: Series, capacity: Capacity = UNBOUNDED, length: timedelta = HOUR,
    running: tuple[Running, ...] = (),
) -> list[Outcome]:  # fmt: skip
    return list(Simulation(given, capacity, running, NOW, NOW + length).outcomes())


def ran(found: list[Outcome], of: int | None = None) -> list[Executed]:
    """Return the executions, all or those of the series with this number."""
    return [x for x in found if isinstance(x, Executed) and of in (None, x.series)]


def executed(found: list[Outcome]) -> list[tuple[str, str]]:
    return [(f"{one.start:%H:%M:%S}", f"{one.end:%H:%M:%S}") for one in ran(found)]


def skipped(found: list[Outcome]) -> Counter[SkipReason]:
    return Counter(one.reason for one in found if isinstance(one, Skipped))


@pytest.mark.parametrize(
    ("overlap", "starts", "skips"),
    [
        (Overlap.SKIP, ["12:01", "12:03", "12:05"], 2),
        (Overlap.ALLOW, ["12:01", "12:02", "12:03", "12:04", "12:05"], 0),
        (Overlap.REPLACE, ["12:01", "12:02", "12:03", "12:04", "12:05"], 0),
    ],
)
def test_a_plan_time_that_is_due_during_an_execution(
    overlap: Overlap, starts: list[str], skips: int
) -> None:
    found = outcomes(series("job", "* * * * *", 90, overlap=overlap), length=5 * MINUTE)
    assert sorted(start[:5] for start, _ in executed(found)) == starts
    assert skipped(found)[SkipReason.OVERLAP] == skips
    if overlap is Overlap.REPLACE:
        assert executed(found)[0] == ("12:01:00", "12:02:00")


def test_wait_starts_the_newest_after_the_running_one() -> None:
    found = outcomes(series("job", "* * * * *", 150, overlap=Overlap.WAIT), length=7 * MINUTE)
    assert [start for start, _ in executed(found)] == ["12:01:00", "12:03:30", "12:06:00"]
    # At 12:03:30 the plan_times 12:02 and 12:03 are due, and at 12:06 those of 12:04 to 12:06.
    assert skipped(found) == {SkipReason.SUPERSEDED: 3}
    assert ran(found)[1].cause is Cause.OVERLAP


def test_executions_wait_for_slots_in_the_order_of_due_at() -> None:
    jobs = [series(f"job{n}", "30 12 * * *", 600) for n in range(3)]
    found = outcomes(*jobs, capacity=slots(1))
    assert [start for start, _ in executed(found)] == ["12:30:00", "12:40:00", "12:50:00"]
    assert [one.cause for one in ran(found)] == [None, Cause.SLOTS, Cause.SLOTS]
    unstarted = outcomes(*jobs, capacity=slots(1), length=45 * MINUTE)[-1]
    assert isinstance(unstarted, Unstarted)
    assert (unstarted.series, unstarted.cause) == (2, Cause.SLOTS)


def test_limits_of_jobs_and_queues_hold() -> None:
    tenants = [series("job", "30 12 * * *", 600, scope=f"t{n}", max_running=2) for n in range(4)]
    found = outcomes(*tenants)
    assert [start for start, _ in executed(found)] == ["12:30:00"] * 2 + ["12:40:00"] * 2
    assert {one.cause for one in ran(found)} == {None, Cause.JOB}
    jobs = [series(f"job{n}", "30 12 * * *", 600) for n in range(2)]
    limited = outcomes(*jobs, capacity=Capacity([], {"default": 1}))
    assert [start for start, _ in executed(limited)] == ["12:30:00", "12:40:00"]
    assert {one.cause for one in ran(limited)} == {None, Cause.QUEUE}


def test_a_missed_plan_time_follows_grace_and_catch_up() -> None:
    slow = series("a-slow", "30 12 * * *", 600)
    late = series("late", "30 12 * * *", 1, catch_up=CatchUp.SKIP, grace=MINUTE)
    found = outcomes(slow, late, capacity=slots(1))
    assert skipped(found) == {SkipReason.MISSED: 1}
    patient = series("late", "30 12 * * *", 1, catch_up=CatchUp.SKIP, grace=HOUR)
    assert not skipped(outcomes(slow, patient, capacity=slots(1)))


def test_a_runner_of_several_queues_starts_what_waits_first() -> None:
    jobs = [
        series("a", "30 12 * * *", 600, queue="a"), series("b", "31 12 * * *", 60, queue="b"),
        series("c", "32 12 * * *", 60, queue="a"),
    ]  # fmt: skip
    found = outcomes(*jobs, capacity=slots(1, "a", "b"))
    assert [one.series for one in ran(found)] == [0, 1, 2]
    assert [start for start, _ in executed(found)] == ["12:30:00", "12:40:00", "12:41:00"]


def test_an_execution_that_runs_now_uses_its_slot_and_blocks_its_scope() -> None:
    running = (Running(ScopeKey("job", "global", GLOBAL), "default", NOW + 90 * SECOND),)
    found = outcomes(series("job", "* * * * *", 1), running=running, length=3 * MINUTE)
    assert [start for start, _ in executed(found)] == ["12:02:00", "12:03:00"]
    assert skipped(found) == {SkipReason.OVERLAP: 1}
    other = outcomes(
        series("other", "* * * * *", 1), running=running, length=2 * MINUTE, capacity=slots(1)
    )
    assert executed(other)[0][0] == "12:01:50"


def test_an_observed_job_starts_at_its_plan_times_and_uses_nothing() -> None:
    pause = ((NOW + 2 * MINUTE, NOW + 4 * MINUTE),)
    seen = series("seen", "* * * * *", 600, handler=Handler.OBSERVED, pauses=pause)
    jobs = [series("a", "1 12 * * *", 3600), series("b", "1 12 * * *", 10), seen]
    limited = Capacity([Pool(frozenset({"default"}), 2)], {"default": 2})
    simulation = Simulation(jobs, limited, (), NOW, NOW + 6 * MINUTE)
    found = list(simulation.outcomes())
    assert executed([x for x in found if x.series < 2]) == [
        ("12:01:00", "12:01:10"), ("12:01:00", "13:01:00"),
    ]  # fmt: skip
    starts = [start for start, _ in executed([x for x in found if x.series == 2])]
    assert starts == ["12:01:00", "12:02:00", "12:05:00", "12:06:00"]
    assert skipped(found) == {SkipReason.PAUSED: 2}
    assert simulation.most_running == {"default": 2}
    counted = look(seen, length=HOUR)
    assert counted.jobs["seen", NOW.date()] == {STARTS: 58, SkipReason.PAUSED: 2}
    assert sum(counted.starts) == 0 and max(counted.running) == 0 and counted.peaks == []


def test_an_observed_run_that_runs_now_uses_nothing() -> None:
    key = ScopeKey("job", "global", GLOBAL)
    running = (Running(key, "default", NOW + HOUR, is_observed=True),)
    limited = Capacity([Pool(frozenset({"default"}), 1)], {"default": 1})
    found = outcomes(
        series("job", "* * * * *", 1, max_running=1), running=running, length=2 * MINUTE,
        capacity=limited,
    )  # fmt: skip
    assert [start for start, _ in executed(found)] == ["12:01:00", "12:02:00"]


def test_a_pause_without_an_end_holds_the_rest() -> None:
    start = NOW.replace(minute=10, second=0)
    job = series("job", "* * * * *", 1)
    paused = Revision(1, start, JobState.PAUSED, job.job)
    found = outcomes(
        Series(job.key, [*job.revisions, paused], NOW, SECOND, SECOND), length=30 * MINUTE
    )
    assert len(executed(found)) == 9 and skipped(found) == {SkipReason.PAUSED: 20}
    # It is due when the pause begins, so no replica starts it before the end of the pause.
    assert [one.cause for one in found if isinstance(one, Unstarted)] == [Cause.PAUSE]


def test_dates_of_a_calendar_are_skipped() -> None:
    calendar = Calendar(
        "de", 1, date(2026, 1, 1), date(2030, 12, 31), {date(2026, 6, 2): "Holiday"}
    )
    found = look(series("job", "0 18 * * *", 1, calendar=calendar), length=3 * DAY)
    assert found.days[date(2026, 6, 1)] == {STARTS: 1}
    assert found.days[date(2026, 6, 2)] == {SkipReason.CALENDAR: 1}


def test_a_planned_skip_is_one_of_an_operator() -> None:
    skip = PlannedSkip(NOW.replace(minute=10, second=0), NOW.replace(minute=19), "move")
    job = replace(series("job", "* * * * *", 1), planned_skips=[skip])
    found = outcomes(job, length=30 * MINUTE)
    assert skipped(found) == {SkipReason.OPERATOR: 10}
    assert len(executed(found)) == 20


def gated(name: str, seconds: float, *required: str, **policies: Any) -> Series:
    policies = {"schedule": "30 12 * * *", **policies}
    return series(name, policies.pop("schedule"), seconds, requires=[*required], **policies)


def test_an_execution_starts_without_delay_when_its_last_required_job_has_ended() -> None:
    jobs = [
        gated("load", 60, "extract", "first"), series("extract", "30 12 * * *", 600),
        series("first", "20 12 * * *", 300),
    ]  # fmt: skip
    (load,) = ran(outcomes(*jobs, capacity=slots(1)), of=0)
    assert (f"{load.start:%H:%M}", load.upstream, load.cause) == ("12:40", "extract", None)
    assert load.ready_at == load.start


def test_a_plan_time_that_is_skipped_keeps_a_gate_closed() -> None:
    skip = PlannedSkip(NOW.replace(minute=20, second=0), NOW.replace(minute=25), "move")
    extract = replace(series("extract", "*/10 * * * *", 1), planned_skips=[skip])
    found = outcomes(extract, gated("load", 1, "extract"))
    (load,) = (one for one in found if isinstance(one, Unstarted))
    assert (load.cause, load.upstream) == (Cause.UPSTREAM, "extract")


def test_a_gate_waits_for_each_plan_time_of_its_interval_from_now_on() -> None:
    hourly = series("hourly", "*/10 * * * *", 120)
    found = look(hourly, gated("daily", 1, "hourly", schedule="0 13 * * *"), length=2 * HOUR)
    assert found.jobs["daily", date(2026, 6, 1)] == {STARTS: 1}
    assert found.gates["daily", "hourly"] == rules.GateWaits(1, 2 * MINUTE)
    assert not look(series("hourly", "0 1 * * *", 120), gated("daily", 1, "hourly")).gates


def test_a_running_execution_keeps_a_gate_closed() -> None:
    extract = series("extract", "0 12 * * *", 60)
    at = NOW.replace(second=0)
    running = (Running(extract.key, "default", NOW + 45 * MINUTE, at),)
    found = outcomes(extract, gated("load", 1, "extract"), running=running)
    assert executed(found) == [("12:45:20", "12:45:21")]
    assert executed(outcomes(extract, gated("load", 1, "extract"))) == [("12:30:00", "12:30:01")]


def test_a_wait_ends_after_wait_at_most() -> None:
    pause = ((NOW, NOW + HOUR),)
    paused = series("extract", "30 12 * * *", 1, pauses=pause)
    load = gated("load", 1, "extract", wait_at_most=20 * MINUTE, finish_by="5m")
    found = look(paused, load, length=2 * HOUR)
    at = NOW.replace(minute=30, second=0)
    assert found.jobs["load", date(2026, 6, 1)] == {SkipReason.UPSTREAM: 1}
    assert found.gates == {("load", "extract"): rules.GateWaits(1, 20 * MINUTE, 1, at)}
    assert found.missed == {"load": 1}
    (waiting,) = (x for x in outcomes(paused, load, length=40 * MINUTE) if type(x) is Unstarted)
    assert (waiting.cause, waiting.upstream) == (Cause.UPSTREAM, "extract")


@pytest.mark.parametrize(
    ("overlap", "starts"),
    [
        # The gate of 12:10 opens at 12:25, and those of 12:20 and 12:30 at once.
        (Overlap.ALLOW, ["12:20", "12:25", "12:30"]),
        (Overlap.WAIT, ["12:20", "12:29", "12:38"]),
        (Overlap.REPLACE, ["12:20", "12:25", "12:30"]),
        # The plan_time of 12:30 is a skip.
        (Overlap.SKIP, ["12:20", "12:29"]),
    ],
)
def test_open_gates_start_beside_a_running_execution_as_overlap_says(
    overlap: Overlap, starts: list[str]
) -> None:
    load = gated(
        "load", 540, "extract", schedule="10,20,30 12 * * *", overlap=overlap, wait_at_most=DAY
    )
    found = outcomes(load, series("extract", "10 12 * * *", 900), length=2 * HOUR)
    assert sorted(f"{one.start:%H:%M}" for one in ran(found, of=0)) == starts


def test_an_open_gate_waits_for_a_slot_and_for_the_end_of_a_pause() -> None:
    extract = series("extract", "30 12 * * *", 60)
    narrow = Capacity([Pool(frozenset({"narrow"}), 1)], {})
    other = series("other", "30 12 * * *", 600, queue="narrow")
    waiting = gated("load", 1, "extract", queue="narrow")
    (load,) = ran(outcomes(waiting, extract, other, capacity=narrow), of=0)
    assert (load.cause, load.start - load.ready_at) == (Cause.SLOTS, 9 * MINUTE)
    pause = ((NOW.replace(minute=30, second=30), NOW.replace(minute=50)),)
    held = outcomes(gated("load", 1, "extract", pauses=pause), extract)
    (held_load,) = ran(held, of=0)
    assert (held_load.cause, held_load.start) == (Cause.PAUSE, pause[0][1])


class _Planner(Simulation):
    """Asks the planner about every plan_time."""

    def _decide(self, scope: Any, first: Any, at: datetime) -> Iterator[Skipped]:
        yield from self._plan(scope, at)


policies = st.fixed_dictionaries(
    {
        "overlap": st.sampled_from(Overlap), "catch_up": st.sampled_from(CatchUp),
        "grace": st.sampled_from([timedelta(0), 30 * SECOND, HOUR]),
        "catch_up_window": st.sampled_from([timedelta(0), MINUTE, DAY]),
        "jitter": st.sampled_from([timedelta(0), 100 * SECOND, 10 * MINUTE]),
        "max_running": st.sampled_from([None, 1, 2]),
        "queue": st.sampled_from(["a", "b"]),
    }
)  # fmt: skip


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["* * * * *", "*/3 * * * *", "*/20 * * * * *", "5-50/5 12 * * *"]),
            st.integers(0, 400), policies, st.booleans(),
        ), min_size=1, max_size=5,
    ),
    st.integers(1, 3), st.sampled_from([None, 1, 2]), st.booleans(),
)  # fmt: skip
def test_the_simulation_decides_as_the_planner(
    jobs: list[tuple[str, int, dict[str, Any], bool]], free: int, limit: int | None, shared: bool
) -> None:
    pause = ((NOW + 7 * MINUTE, NOW + 11 * MINUTE),)
    given_series = [
        series(f"job{n}", schedule, seconds, pauses=pause if paused else (), **given_policies)
        for n, (schedule, seconds, given_policies, paused) in enumerate(jobs)
    ]
    pools = [Pool(frozenset({"a", "b"}), free)] if shared else [Pool(frozenset({"a"}), free)]
    capacity = Capacity(pools, {} if limit is None else {"b": limit})
    arguments = (given_series, capacity, (), NOW, NOW + 30 * MINUTE)
    quick, slow = (list(kind(*arguments).outcomes()) for kind in (Simulation, _Planner))
    assert quick == slow
    seen = [(one.series, one.plan_time) for one in quick]
    assert len(seen) == len(set(seen)), "a plan_time has two outcomes"
    for number, one in enumerate(given_series):
        own = ran(quick, of=number)
        at_once = max((sum(x.start <= y.start < x.end for x in own) for y in own), default=0)
        if one.job.overlap is not Overlap.ALLOW and one.typical:
            assert at_once <= 1
        assert all(x.start >= x.due_at and x.end - x.start <= one.typical for x in own)


# --- the forecast ---------------------------------------------------------------------------------


def look(
    *given: Series, capacity: Capacity = UNBOUNDED, length: timedelta = DAY, **more: Any
) -> Forecast:
    return forecast(given, capacity, (), NOW, length, **more)


def test_a_forecast_counts_by_day_and_job() -> None:
    found = look(series("hourly", "0 * * * *", 1), series("slow", "* * * * *", 90))
    today, tomorrow = date(2026, 6, 1), date(2026, 6, 2)
    assert found.jobs["hourly", today] == {STARTS: 11}
    assert found.jobs["hourly", tomorrow] == {STARTS: 13}
    assert found.days[today][SkipReason.OVERLAP] == 359
    assert sum(found.starts) == sum(of[STARTS] for of in found.days.values())


def test_the_minutes_have_starts_and_executions_at_once() -> None:
    found = look(series("job", "30 0 13 * * *", 90))
    assert [minute for minute, n in enumerate(found.starts) if n] == [60]
    assert found.start == NOW.replace(second=0)
    assert list(found.running[59:63]) == [0.0, 0.5, 1.0, 0.0]
    assert [peak.minute for peak in found.peaks] == [61, 60]
    assert found.peaks[0].shares[0].running == pytest.approx(1.0)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 59), st.integers(0, 23), st.integers(0, 90_000)), max_size=6)
)
def test_no_time_is_lost(jobs: list[tuple[int, int, int]]) -> None:
    """The sum over all minutes is the time that all executions run until the end."""
    found = look(*(
        series(f"job{n}", f"{minute} {hour} * * *", seconds, overlap=Overlap.ALLOW)
        for n, (minute, hour, seconds) in enumerate(jobs)
    ))  # fmt: skip
    expected, end = 0.0, found.at(len(found.running))
    for minute, hour, seconds in jobs:
        at = found.start.replace(hour=hour, minute=minute)
        at += timedelta(days=at <= NOW)
        expected += min(seconds, (end - at) / SECOND)
    assert sum(found.running) * 60 == pytest.approx(expected, abs=1e-3)


def test_the_picture_names_the_peak_the_starts_and_the_slots() -> None:
    jobs = [series(f"job{n}", "0 13 * * *", 150) for n in range(3)]
    text = draw_forecast(look(*jobs, capacity=slots(2)), 2)
    assert "At most 2.0 executions at once in the next 25 hours, and 2 starts in one minute" in text
    assert 'class="over"' in text and "2 slots" in text and "style=" not in text
    assert 'class="over"' not in draw_forecast(look(*jobs), 3)
    assert 'class="slots"' not in draw_forecast(look(*jobs), 1000)  # far above what is drawn
    assert "At most 0.0" in draw_forecast(look(length=14 * DAY), 0)


def test_a_backlog_has_its_minutes_its_size_and_its_longest_wait() -> None:
    jobs = [series(f"job{n}", "0 13 * * *", 600) for n in range(4)]
    found = look(*jobs, capacity=slots(2))
    (backlog,) = found.backlogs
    assert (f"{backlog.start:%H:%M}", f"{backlog.end:%H:%M}") == ("13:00", "13:11")
    assert (backlog.most, backlog.longest, backlog.cause) == (2, 10 * MINUTE, Cause.SLOTS)
    assert found.most_running == {"default": 2}
    assert [wait.count for waits in found.waits.values() for wait in waits.values()] == [1, 1]
    assert not look(*jobs, capacity=slots(4)).backlogs


def test_deadlines_are_missed_or_at_risk() -> None:
    found = look(
        series("fine", "0 13 * * *", 60, long=120, finish_by="5m", start_by="1m"),
        series("risky", "0 13 * * *", 60, long=600, finish_by="5m"),
        series("slow", "0 13 * * *", 600, finish_by="13:05"),
        series("block", "0 13 * * *", 300, queue="narrow"),
        series("late", "0 13 * * *", 1, start_by="1m", queue="narrow"),
        capacity=slots(1, "narrow"),
    )
    assert found.missed == {"slow": 1, "late": 1}
    assert found.risky == {"risky": 1}
    (slow,) = (risk for risk in found.risks if risk.key.job_name == "slow")
    assert slow.is_certain and slow.expected == slow.plan_time + 10 * MINUTE
    assert slow.deadline == slow.plan_time + 5 * MINUTE
    (late,) = (risk for risk in found.risks if risk.key.job_name == "late")
    assert late.expected == late.plan_time + 5 * MINUTE


def test_a_skipped_plan_time_misses_its_deadline_unless_it_is_paused() -> None:
    pause = ((NOW, NOW + 3 * MINUTE),)
    job = series("job", "* * * * *", 90, finish_by="10m", pauses=pause)
    found = look(job, length=6 * MINUTE)
    assert found.days[date(2026, 6, 1)][SkipReason.PAUSED] == 3
    assert found.missed["job"] == found.days[date(2026, 6, 1)][SkipReason.OVERLAP] == 1


def test_too_many_firings_end_the_forecast_earlier() -> None:
    found = look(series("job", "* * * * * *", 0.1), most=2000)
    assert found.is_cut and 1000 < sum(found.starts) <= 2000
    assert found.through - NOW < 2000 * SECOND
    assert not look(series("job", "0 * * * *", 0.1)).is_cut


def test_a_long_list_of_risks_is_bounded() -> None:
    found = look(series("job", "* * * * *", 30, finish_by="10s"))
    assert len(found.risks) == rules.MOST_RISKS < found.missed["job"] == 1440
    assert found.risks[0].plan_time == NOW.replace(minute=1, second=0)


def test_differences_are_by_job_and_day() -> None:
    before = look(series("kept", "0 * * * *", 1), series("moved", "0 23 * * *", 1))
    after = look(series("kept", "0 * * * *", 1), series("moved", "0 1 * * *", 1))
    assert [(x.job, x.day.day, dict(x.before), dict(x.after)) for x in differences(before, after)] \
        == [("moved", 1, {STARTS: 1}, {}), ("moved", 2, {}, {STARTS: 1})]  # fmt: skip


def test_an_invalid_schedule_is_named_and_leaves_the_others() -> None:
    broken = series("broken", "0 * * * *", 1)
    job = broken.job.model_copy(update={"schedule": "61 * * * *"})
    revisions = [Revision(0, LONG_AGO, JobState.ACTIVE, job)]
    found = look(Series(broken.key, revisions, NOW, SECOND, SECOND), series("job", "0 * * * *", 1))
    assert found.unreadable == ["broken"] and sum(found.starts) == 24


@pytest.mark.parametrize(
    ("alias", "busy", "expected"),
    [
        ("@hourly", ["0-29 * * * *"], "44 * * * *"),
        ("@daily", ["0 0-11 * * *", "59 23 * * *"], "29 17 * * *"),
        ("@weekly", ["0 * * * 1-6"], "30 11 * * 0"),
    ],
)
def test_a_free_minute_is_in_the_middle_of_a_quiet_time(
    alias: str, busy: list[str], expected: str
) -> None:
    found = look(*(series(f"job{n}", text, 1) for n, text in enumerate(busy)), length=7 * DAY)
    suggestion = suggest(found, alias)
    assert (suggestion.schedule, suggestion.starts) == (expected, 0)
    long = look(series("long", "0 * * * *", 45 * 60), length=7 * DAY)
    assert 45 <= int(suggest(long, "@hourly").schedule.split()[0]) <= 59

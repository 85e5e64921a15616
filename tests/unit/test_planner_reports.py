"""Observed jobs in the planner: which plan_time a report belongs to, and when one is skipped."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronledger.rules import reports
from cronledger.rules.model import Handler, Job, JobState, Revision, SkipReason, Trigger
from cronledger.rules.planner import plan
from cronledger.rules.plans import Plan, Report, Reported, Skip, Unreported
from cronledger.rules.reports import TOLERANCE
from tests.unit.support.planning import DAY, ROOMY, at, job, reading_ahead, revision, row, say
from tests.unit.support.planning import skips as said_skips

SECOND = timedelta(seconds=1)
GRACE = timedelta(seconds=70)


def observed(**fields: Any) -> Job:
    return job("* * * * *", handler=Handler.OBSERVED, grace=GRACE, **fields)


def planned(
    cursor: str, now: str, starts: Sequence[str], *revisions: Revision, **given: Any
) -> Plan:
    """Plan with reports that started then, whose ids are 1, 2, 3, …"""
    found = [Report(number, at(start)) for number, start in enumerate(starts, 1)]
    known = revisions or (revision(1, "00:00", observed()),)
    return plan(row(cursor, reports=found), known, at(now), blocker=None, room=ROOMY, **given)


def ran(plan: Plan) -> list[tuple[int, str, str]]:
    return [(one.report, f"{one.plan_time:%H:%M:%S}", one.trigger.value) for one in plan.reported]


def skipped(plan: Plan) -> list[tuple[str, int]]:
    return [(one.reason.value, one.count) for one in plan.skips]


def test_runs_that_start_late_take_the_plan_times_that_are_left() -> None:
    found = planned("09:00:30", "09:02:30", ["09:02:05", "09:02:06"])
    assert ran(found) == [(2, "09:01:00", "schedule"), (1, "09:02:00", "schedule")]


def test_a_plan_time_without_a_report_waits_for_its_grace() -> None:
    found = planned("09:00:30", "09:02:10", [])
    assert (skipped(found), found.planned_through) == ([], at("09:01") - timedelta(microseconds=1))
    assert found.next_due_at == at("09:02:10.000001")
    found = planned("09:00:30", "09:02:10.000001", [])
    assert skipped(found) == [("not_reported", 1)]


def test_a_report_waits_for_a_plan_time_that_is_nearer() -> None:
    found = planned("09:00:30", "09:00:58", ["09:00:57"])
    assert (ran(found), found.next_due_at) == ([], at("09:01"))
    found = planned("09:00:30", "09:01", ["09:00:57"])
    assert ran(found) == [(1, "09:01:00", "schedule")]


def test_a_doubled_run_does_not_take_the_plan_time_that_follows() -> None:
    often = revision(1, "00:00", job("@every 3s", handler=Handler.OBSERVED, grace=SECOND))
    starts = ["09:00:03", "09:00:03.5", "09:00:06.1"]
    found = planned("09:00:01", "09:00:07", starts, often)
    assert ran(found) == [
        (1, "09:00:03", "schedule"), (3, "09:00:06", "schedule"), (2, "09:00:03", "observed"),
    ]  # fmt: skip


@pytest.mark.parametrize("step", [1, 1000])
def test_a_later_report_waits_for_the_plan_times_before_its_own(step: int) -> None:
    """Also one beyond the limit of a step: it does not make the row due."""
    found = planned("09:00:30", "09:02:05", ["09:02:01"], step=step)
    assert (ran(found), found.next_due_at) == ([], at("09:02:10.000001"))


def test_another_report_of_a_plan_time_is_beside_the_schedule() -> None:
    found = planned("09:00:30", "09:01:20", ["09:01:01", "09:01:11"])
    assert ran(found) == [(1, "09:01:00", "schedule"), (2, "09:01:11", "observed")]


def test_a_late_report_takes_a_skipped_plan_time_that_has_no_execution() -> None:
    part = Unreported(at("09:00:55"), at("09:02:10"), 1, frozenset({at("09:01")}))
    late = Report(1, at("09:02:05"), [part])
    known = revision(1, "00:00", observed())
    found = plan(
        row("09:30", reports=[late]), [known], at("09:30:01"), blocker=None, room=ROOMY,
        earlier={1: known},
    )  # fmt: skip
    assert ran(found) == [(1, "09:02:00", "observed")]
    assert found.reported[0].exact


def test_a_move_to_replicas_settles_what_is_not_reported() -> None:
    moved = revision(2, "09:01:10", job("* * * * *"))
    found = planned("09:00:30", "09:02", [], revision(1, "00:00", observed()), moved)
    assert skipped(found) == [("not_reported", 1)]
    assert [run.plan_time for run in found.runs] == [at("09:02")]


@pytest.mark.parametrize("now", ["09:03:10", "09:45"])  # with all plan_times read, and without
@pytest.mark.parametrize(
    ("catch_up", "skips", "runs"),
    [("skip", [("missed", 1)], ["09:02"]), ("latest", [("superseded", 1)], ["09:02"]),
     ("all", [], ["09:01", "09:02"])],
)  # fmt: skip
def test_later_observed_plan_times_do_not_count_after_a_return(
    now: str, catch_up: str, skips: list[tuple[str, int]], runs: list[str]
) -> None:
    hour = timedelta(hours=1)
    returned = job(
        "* * * * *", grace=hour, observed=True, adopted_at=at("00:00"), returned_at=at("09:02:55"),
        catch_up=catch_up, catch_up_window=hour, overlap="allow",
    )  # fmt: skip
    found = planned("09:00:30", now, [], revision(1, "00:00", returned))
    assert (skipped(found), [run.plan_time for run in found.runs]) == (
        skips, [at(run) for run in runs]
    )  # fmt: skip


@pytest.mark.parametrize(("now", "limit"), [("09:06:30", 1), ("09:45", 40)])
def test_catch_up_counts_the_plan_times_of_replicas_on_both_sides_of_observed_ones(
    now: str, limit: int
) -> None:
    """The limit leaves out the oldest one of replicas. Those in between do not count."""
    hour = timedelta(hours=1)
    returned, adopted = (
        job("* * * * *", grace=hour, observed=True, catch_up="all", catch_up_window=hour,
            catch_up_limit=limit, overlap="allow", **switch)
        for switch in (
            {"adopted_at": at("00:00"), "returned_at": at("09:02:55")},
            {"adopted_at": at("09:05:55")},
        )
    )  # fmt: skip
    known = (revision(1, "00:00", returned), revision(2, "09:03:10", adopted))
    found = planned("09:00:30", now, [], *known)
    assert skipped(found) == [("missed", 1), ("not_reported", 1), ("not_reported", 2)]
    assert [run.plan_time for run in found.runs][:2] == [at("09:02"), at("09:06")]
    assert len(found.runs) == limit + 1  # the newest one is on time


def test_a_move_from_replicas_misses_what_has_not_started() -> None:
    moved = revision(2, "09:01:10", observed())
    found = planned(
        "09:00:30", "09:01:20", ["09:01:01"], revision(1, "00:00", job("* * * * *")), moved
    )
    assert skipped(found) == [("missed", 1)]
    assert ran(found) == [(1, "09:01:01", "observed")]


@pytest.mark.parametrize("catch_up", ["latest", "all"])
@pytest.mark.parametrize(("now", "runs"), [("09:03:30", []), ("09:04:01", ["09:04"])])
def test_what_a_job_missed_without_a_handler_is_not_planned_when_it_has_one_again(
    catch_up: str, now: str, runs: list[str]
) -> None:
    """Even if no claim has planned it in between."""
    hour = timedelta(hours=1)
    own = job("* * * * *", grace=hour, catch_up=catch_up, catch_up_window=hour, overlap="allow")
    known = (
        revision(1, "00:00", own), revision(2, "09:01:10", observed()),
        revision(3, "09:03:10", own),
    )  # fmt: skip
    found = planned("09:00:30", now, [], *known)
    assert skipped(found) == [("missed", 1), ("not_reported", 2)]
    assert [run.plan_time for run in found.runs] == [at(run) for run in runs]


@pytest.mark.parametrize("read", [32, 1])  # with all plan_times read, and without
@pytest.mark.parametrize(
    ("catch_up", "runs", "skips"),
    [("skip", ["09:07"], ["missed 09:06", "missed 09:08"]),
     ("latest", ["09:07"], ["superseded 09:06", "missed 09:08"]),
     ("all", ["09:06", "09:07"], ["missed 09:08"])],
)  # fmt: skip
@pytest.mark.parametrize(
    "stop", [(job(None), JobState.RETIRED), (job("@yearly", handler=Handler.OBSERVED),)]
)
def test_what_is_due_after_a_job_was_stopped_runs_although_a_newer_plan_time_was_missed(
    stop: tuple[Any, ...], catch_up: str, runs: list[str], skips: list[str], read: int
) -> None:
    """With jitter, 09:06 is due at 09:17:15, 09:07 at 09:21:40, but 09:08 at 09:09:06."""
    hour = timedelta(hours=1)
    own = job(
        "6,7,8 9 * * *", jitter="20m", grace=hour, catch_up=catch_up, catch_up_window=hour,
        overlap="allow",
    )  # fmt: skip
    known = (
        revision(1, "00:00", own), revision(2, "09:09:26", *stop), revision(3, "09:10:06", own),
    )  # fmt: skip
    with reading_ahead(read):
        found = planned("09:00:30", "09:21:45", [], *known)
    assert ([say(run.plan_time) for run in found.runs], said_skips(found)) == (runs, skips)


def test_more_reports_than_a_claim_reads_are_settled_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reports, "MOST", 2)
    found = planned("09:00:30", "09:09:30", ["09:01:01", "09:02:01"])
    assert ran(found) == [(1, "09:01:00", "schedule"), (2, "09:02:00", "schedule")]
    assert (skipped(found), found.next_due_at) == ([], at("09:09:30"))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[int, int, list[tuple[float, float]]]:
    """A period and a grace in seconds, and reports: when each started and when it was received."""
    period, grace = draw(st.integers(3, 40)), draw(st.integers(0, 60))
    starts = draw(st.lists(st.integers(0, 1200), max_size=12))
    delays = [draw(st.sampled_from([0, 1, 30, 500])) for _ in starts]
    return period, grace, [(x / 4, x / 4 + delay) for x, delay in zip(starts, delays, strict=True)]


@pytest.mark.long
@given(
    world=worlds(),
    steps=st.lists(st.integers(1, 300), min_size=1, max_size=8),
    most=st.integers(1, 9),
)
def test_every_plan_time_and_every_report_is_settled_once(
    world: tuple[int, int, list[tuple[float, float]]], steps: list[int], most: int
) -> None:
    """However the claims fall: no plan_time is lost or doubled, and no skip conceals a report."""
    period, grace, given_ = world
    definition = job(f"@every {period}s", handler=Handler.OBSERVED, grace=timedelta(seconds=grace))
    known = revision(1, "00:00", definition)
    received = [(DAY + start * SECOND, DAY + seen * SECOND) for start, seen in given_]
    settled: dict[int, Reported] = {}
    skips: list[Skip] = []
    cursor, end = DAY, DAY + timedelta(seconds=2000)
    nows = sorted({DAY + timedelta(seconds=sum(steps[: n + 1])) for n in range(len(steps))} | {end})
    for now in nows:
        for _ in range(10_000):
            waiting = [
                Report(number, start, unreported(skips, start, settled.values(), grace))
                for number, (start, seen) in enumerate(received)
                if number not in settled and seen <= now
            ]
            found = plan(
                replace(row("00:00"), planned_through=cursor,
                        reports=sorted(waiting, key=lambda one: (one.started_at, one.id))),
                [known], now, blocker=None, room=ROOMY, step=most, earlier={1: known},
            )  # fmt: skip
            assert found.planned_through >= cursor
            cursor = found.planned_through
            for one in found.reported:
                assert one.report not in settled
                settled[one.report] = one
            skips.extend(found.skips)
            if found.next_due_at is None or found.next_due_at > now:
                break
        else:
            raise AssertionError("it does not come to rest")
    late = [number for number, (start, seen) in enumerate(received) if number not in settled]
    assert not late
    matched = [one.plan_time for one in settled.values() if one.trigger is Trigger.SCHEDULE]
    ranges = [(skip.from_plan_time, skip.through_plan_time) for skip in skips]
    every = [DAY + timedelta(seconds=n) for n in range(1, 2001)]
    schedule = [t for t in every if not int(t.timestamp()) % period and t <= cursor]
    counted = Counter(matched) + Counter(
        t for t in schedule for first, last in ranges if first <= t <= last
    )
    assert counted == Counter(schedule)
    assert {skip.reason for skip in skips} <= {SkipReason.NOT_REPORTED}
    skipped_ = [t for t in schedule if any(first <= t <= last for first, last in ranges)]
    for number, (start, seen) in enumerate(received):
        one = settled[number]
        if one.exact:
            assert -TOLERANCE <= start - one.plan_time <= timedelta(seconds=grace)
            continue
        for t in skipped_:
            if not -TOLERANCE <= start - t <= timedelta(seconds=grace):
                continue
            if any(start - x <= t - start for x in (DAY, *schedule) if x <= start):
                continue
            # It may have been skipped before the report came, and given to another one.
            others = [x.plan_time for n, x in settled.items() if n != number]
            assert seen > t + timedelta(seconds=grace)
            assert t in others


def unreported(
    skips: Sequence[Skip], start: datetime, settled: Any, grace: int
) -> list[Unreported]:
    """What `unmatched_reports` returns for a report."""
    low, high = start - timedelta(seconds=grace), start + TOLERANCE
    taken = frozenset(one.plan_time for one in settled if one.exact)
    return [
        Unreported(max(low, one.from_plan_time), min(high, one.through_plan_time), 1, taken)
        for one in skips
        if one.from_plan_time <= high and one.through_plan_time >= low
    ]

"""Random jobs, edits, pauses, retirements, outages: each plan_time once, in order, by the rules."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronledger.rules.model import Overlap, Parked, SkipReason
from cronledger.rules.planner import Room, plan
from cronledger.rules.plans import Plan, ScheduleRow, Skip
from tests.unit.support.planner_worlds import (
    AHEAD,
    SECOND,
    Call,
    Judged,
    World,
    calls,
    excludes,
    judged,
    local_worlds,
    second,
    worlds,
)
from tests.unit.support.planning import TICK, advanced, outcomes, reading_ahead

pytestmark = pytest.mark.long

# --- what holds for one plan ---------------------------------------------------------------------


def check(world: World, row: ScheduleRow, now: datetime, call: Call, answer: Plan) -> Judged:
    """Whatever one plan must be; answers what became of each plan_time it settled."""
    now = max(now, row.planned_through)
    policy = world.in_force(now).job
    exists = world.exists(row.planned_through, answer.planned_through)
    found = outcomes(answer, exists)

    # All that lies between the two cursors, once, in order, and as the rules judge it.
    assert [plan_time for plan_time, _ in found] == exists
    assert found == judged(world, row.planned_through, now, call.blocker)[: len(found)]
    assert answer.settled == len(found) <= call.step
    assert row.planned_through <= answer.planned_through <= now
    number = world.in_force(answer.planned_through).revision
    assert answer.planned_revision == max(number, row.planned_revision)
    assert (answer.next_due_at is None) is (answer.parked is not None)
    assert answer.spec_error is None
    for one in answer.skips:
        assert one.detail == _detail(world, one)
    for one, next_one in zip(answer.skips, answer.skips[1:], strict=False):
        joined = (one.reason, one.revision, one.blocked_by, one.detail)
        same = joined == (next_one.reason, next_one.revision, next_one.blocked_by, next_one.detail)
        between = [r for r in answer.runs if one.through_plan_time < r.plan_time]
        assert not same or any(r.plan_time < next_one.from_plan_time for r in between)

    assert len(answer.runs) <= min(
        n for n in (call.room.slots, call.room.job, call.room.queue) if n is not None
    )
    for run in answer.runs:
        assert run.due_at == world.due(run.plan_time) <= now
        assert run.revision is world.before(run.plan_time)
    if policy.overlap is not Overlap.ALLOW:
        assert len(answer.runs) <= (0 if call.blocker is not None else 1)
    return found


def _detail(world: World, skip: Skip) -> str | None:
    if skip.reason is SkipReason.OPERATOR:
        assert world.skipped(skip.from_plan_time) == world.skipped(skip.through_plan_time)
        return world.skipped(skip.from_plan_time)
    return "Ash Wednesday" if skip.reason is SkipReason.CALENDAR else None


def check_next(world: World, now: datetime, call: Call, answer: Plan) -> None:
    """Why the walk stopped where it did, and that the row comes back for what is left."""
    cursor = answer.planned_through
    policy = world.in_force(now).job
    left = judged(world, cursor, now, call.blocker)
    later = world.exists(cursor, now + AHEAD * SECOND)
    edits = [r.effective_from for r in world.revisions[1:] if r.effective_from > now]
    returns = (end for _, end in world.retirements if end is not None and end > now)
    changes = [*edits, *returns]
    held = world.reason(now + TICK) in {SkipReason.PAUSED, SkipReason.RETIRED}
    if answer.parked in (Parked.WAITING, Parked.LIMIT):
        assert left
        assert left[0][1][0] is None
        assert answer.next_plan_time == left[0][0]
        busy = call.blocker is not None or len(answer.runs) == 1
        assert answer.parked is Parked.LIMIT or (busy and policy.overlap is not Overlap.ALLOW)
        assert answer.replaces is (
            policy.overlap is Overlap.REPLACE and answer.parked is Parked.WAITING
        )
        return
    assert not answer.replaces
    if answer.parked in (Parked.PAUSED, Parked.RETIRED):
        assert held
        assert not changes
        assert not left or left[0][1][0] is None  # what the pause holds back would run
    elif answer.parked is not None:
        assert not left
        assert not later
    elif held and not (left and answer.settled == call.step):
        # The clock went back: the end of what holds the row is known, and nothing else wakes it.
        assert answer.next_due_at == min(changes)
    elif left:
        assert answer.next_due_at is not None
        assert answer.next_due_at <= now
        again = policy.overlap in (Overlap.SKIP, Overlap.REPLACE) and answer.runs
        assert answer.settled == call.step or len(answer.runs) == call.room.slots or again
    else:
        assert answer.next_due_at is not None
        assert answer.next_due_at > now
        wanted = [world.due(later[0])] if later else []
        if later and later[0] >= second(0) and excludes(world.in_force(now)):
            assert answer.next_due_at == min([*wanted, *edits])
            assert answer.next_plan_time is None or answer.next_plan_time >= second(86_400)
        elif later and world.skipped(later[0]) is not None:
            assert answer.next_due_at == min([*wanted, *edits])
            free = next((one for one in later if world.skipped(one) is None), None)
            assert answer.next_plan_time in (free, None)
            assert answer.next_plan_time is not None or edits or free is None
        elif answer.next_plan_time is None:
            assert answer.next_due_at == min(changes)
        else:
            assert answer.next_due_at == min([*wanted, *edits])
            assert answer.next_plan_time == later[0]


# --- properties ----------------------------------------------------------------------------------


@settings(max_examples=150, derandomize=True)
@given(worlds(), st.lists(calls, min_size=4, max_size=8))
def test_every_plan_time_is_settled_once_in_order_by_the_rules(
    world: World, steps: list[Call]
) -> None:
    cursor = second(-2.5)
    row, now, latest = world.row(cursor, 1), cursor, cursor
    seen: Judged = []
    known = world.known_at(latest)
    for call in steps:
        now = max(now + call.wait, second(-2))
        if now > latest:
            latest, before = now, known
            known = world.known_at(latest)
            known = before if before == known else known  # it has listed its plan_times
        row = replace(row, retirements=known.retirements, absences=known.absences)
        revisions = known.since(row.planned_revision)
        answer = plan(
            row, revisions, now, blocker=call.blocker, room=call.room, step=call.step
        )  # fmt: skip
        seen += check(known, row, now, call, answer)
        check_next(known, max(now, row.planned_through), call, answer)
        row = advanced(row, answer)
    assert [plan_time for plan_time, _ in seen] == world.exists(cursor, row.planned_through)
    for _, (reason, _, by) in seen:
        assert (by is not None) is (reason is SkipReason.OVERLAP)


def planned_all_ways(world: World, row: ScheduleRow, now: datetime, call: Call) -> Plan:
    """The plan, which is the same whether the planner reads the backlog or searches and counts."""
    revisions = world.since(row.planned_revision)
    answers = []
    for plan_times in (100_000, 32, 1):
        with reading_ahead(plan_times):
            answer = plan(
                row, revisions, now, blocker=call.blocker, room=call.room, step=call.step
            )  # fmt: skip
            answers.append(answer)
    assert answers[1:] == answers[:1] * 2
    return answers[0]


@settings(max_examples=100, derandomize=True)
@given(worlds(), st.lists(calls, min_size=2, max_size=6))
def test_a_backlog_that_is_searched_and_counted_is_planned_like_one_that_is_read(
    world: World, steps: list[Call]
) -> None:
    row, now = world.row(second(-2.5), 1), second(100)
    for call in steps:
        now = max(now + 3 * call.wait, second(-2))
        known = world.known_at(max(now, row.planned_through))
        row = replace(row, retirements=known.retirements, absences=known.absences)
        row = advanced(row, planned_all_ways(known, row, now, call))


@settings(max_examples=60, derandomize=True)
@given(
    local_worlds(),
    st.lists(
        st.builds(
            Call,
            st.timedeltas(-timedelta(hours=3), timedelta(days=2)),
            st.sampled_from([None, None, 7]),
            st.sampled_from([Room(slots, None, None) for slots in (0, 1, 10, 1000)]),
            st.sampled_from([10_000, 50]),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_a_backlog_over_clock_changes_is_planned_alike_all_ways(
    world_and_start: tuple[World, datetime], steps: list[Call]
) -> None:
    world, now = world_and_start
    row = world.row(now, 1)
    for call in steps:
        now += call.wait
        known = world.known_at(max(now, row.planned_through))
        row = replace(row, retirements=known.retirements, absences=known.absences)
        row = advanced(row, planned_all_ways(known, row, now, call))

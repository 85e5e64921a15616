"""Scopes that differ in nothing but their names share one plan, which is that of each of them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronledger.engine.claiming import shared_plans
from cronledger.engine.claiming.shared_plans import SharedPlans
from cronledger.rules.model import HOST, Job, Overlap, ScopeKey
from cronledger.rules.planner import Room, plan
from cronledger.rules.plans import Plan, PlannedSkip, Retirement, ScheduleRow
from tests.unit.support.planner_worlds import Call, World, calls, second, worlds
from tests.unit.support.planning import DAY, at, job, revision, row

STEP = 4
CURSORS = (9.5, -2.5, -1.5, 1.5, 59.5)  # seconds
ALONE: Mapping[str, Any] = {"blocker": None, "earlier": {}, "away": False}
ROOM = Room(100, None, None)


def scope(name: str, kind: str = "tenant") -> ScopeKey:
    return ScopeKey("j", kind, name)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[ScheduleRow]:
    """The rows for which the planner is called."""
    rows: list[ScheduleRow] = []

    def called(row: ScheduleRow, *args: Any, **given: Any) -> Plan:
        rows.append(row)
        return plan(row, *args, **given)

    monkeypatch.setattr(shared_plans, "plan", called)
    return rows


@settings(max_examples=60, derandomize=True)
@given(worlds(), st.integers(0, 200), st.lists(calls, min_size=2, max_size=4))
def test_a_shared_plan_is_that_of_each_scope(world: World, now: int, asked: list[Call]) -> None:
    shared, revisions = SharedPlans(STEP), world.since(1)
    for number, (call, cursor) in enumerate(product(asked, CURSORS)):
        start = replace(world.row(second(cursor), 1), key=scope(str(number)))
        plain = replace(start, retirements=(), planned_skips=(), absences=())
        one = plain if number % 4 else start
        answer = shared.plan(
            one, revisions, second(now), blocker=call.blocker, room=call.room, earlier={},
            away=False,
        )  # fmt: skip
        assert answer == plan(
            one, revisions, second(now), blocker=call.blocker, room=call.room, step=STEP
        )


def test_scopes_share_a_plan_unless_something_else_decides(planned: list[ScheduleRow]) -> None:
    late = timedelta(minutes=1)
    skips, gone = [PlannedSkip(DAY, DAY, "stock")], [Retirement(at("08:50"), at("08:55"))]
    definition = job("*/10 * * * *", grace=late)
    cases: list[tuple[Job, dict[str, Any], int]] = [
        (definition, {}, 1), (definition, {"retirements": gone}, 3),
        (definition, {"planned_skips": skips}, 3), (definition, {"window_start": at("08:00")}, 3),
        (job("*/10 * * * *", jitter=late), {}, 3), (job("H * * * *"), {}, 3),
        (definition, {"kind": HOST}, 3), (definition, {"blocker": 7}, 3),
    ]  # fmt: skip
    for changed, fields, calls_of_planner in cases:
        planned.clear()
        shared, revisions = SharedPlans(STEP), [revision(1, "-9 00:00", changed)]
        kind, blocker = fields.pop("kind", "tenant"), fields.pop("blocker", None)
        given = {**ALONE, "blocker": blocker}
        for name in ("a", "b", "c"):
            of_scope = replace(row("08:59", **fields), key=scope(name, kind))
            shared.plan(of_scope, revisions, at("09:00"), room=ROOM, **given)
        assert len(planned) == calls_of_planner, (changed.schedule, fields, kind, blocker)


@pytest.mark.parametrize(("overlap", "least"), [(Overlap.WAIT, 1), (Overlap.ALLOW, STEP)])
def test_a_plan_is_shared_while_the_room_is_larger_than_what_may_start(
    planned: list[ScheduleRow], overlap: Overlap, least: int
) -> None:
    definition = job("@every 1m", overlap=overlap, catch_up="all", catch_up_window="1d")
    shared, revisions = SharedPlans(STEP), [revision(1, "-9 00:00", definition)]
    started = []
    for slots in (least + 5, least, least - 1):
        of_scope = replace(row("08:00"), key=scope(str(slots)))
        room = Room(slots, None, None)
        found = shared.plan(of_scope, revisions, at("09:00"), room=room, **ALONE)
        started.append(len(found.runs))
    assert (started, len(planned)) == ([least, least, least - 1], 2)


def test_a_plan_that_starts_less_than_any_limit_is_shared_while_slots_run_out(
    planned: list[ScheduleRow],
) -> None:
    definition = job("@every 1m", overlap=Overlap.ALLOW)
    shared, revisions = SharedPlans(STEP), [revision(1, "-9 00:00", definition)]
    for slots in (STEP, 3, 2):
        of_scope = replace(row("08:59"), key=scope(str(slots)))
        room = Room(slots, None, None)
        assert len(shared.plan(of_scope, revisions, at("09:00"), room=room, **ALONE).runs) == 1
    assert len(planned) == 1


def test_a_plan_is_that_of_later_cursors_before_its_first_plan_time(
    planned: list[ScheduleRow],
) -> None:
    definition = job("*/10 * * * *", overlap=Overlap.ALLOW, catch_up="all", catch_up_window="1d")
    shared, revisions = SharedPlans(STEP), [revision(1, "-9 00:00", definition)]
    started = []
    for cursor in ("08:41", "08:49", "08:50", "08:59", "08:45"):
        of_scope = replace(row(cursor), key=scope(cursor))
        found = shared.plan(of_scope, revisions, at("09:00"), room=ROOM, **ALONE)
        started.append(len(found.runs))
    assert (started, len(planned)) == ([2, 2, 1, 1, 2], 3)

"""Words for the planner's tests: instants of one day, rows, revisions, and plans as text."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronledger.rules import planner
from cronledger.rules.model import Handler, Job, JobState, Revision, ScopeKey, SkipReason
from cronledger.rules.planner import STEP, Room, plan
from cronledger.rules.plans import Plan, ScheduleRow

KEY = ScopeKey("j", "global", "global")
DAY = datetime(2026, 3, 4, tzinfo=UTC)
ROOMY = Room(10_000_000, None, None)
TICK = timedelta(microseconds=1)


def at(text: str) -> datetime:
    """`09:00`, `09:00:30` or `09:00:30.5` of the tests' day; `+1 09:00`: of the next one."""
    days = 0
    if text[0] in "+-":
        shift, text = text.split()
        days = int(shift)
    hour, minute, *rest = text.split(":")
    parts = timedelta(hours=int(hour), minutes=int(minute), seconds=float(rest[0] if rest else 0))
    return DAY + timedelta(days=days) + parts


def say(instant: datetime | None) -> str | None:
    """The inverse of `at`, as short as it can be."""
    if instant is None:
        return None
    days = (instant - DAY).days
    text = instant.strftime("%H:%M:%S.%f").rstrip("0").rstrip(".").removesuffix(":00")
    if len(text) < 5:
        text = instant.strftime("%H:%M")
    return f"{days:+d} {text}" if days else text


def job(schedule: str | None = "@every 10m", **fields: Any) -> Job:
    return Job.model_validate({"name": "j", "handler": Handler.COMMAND} | fields | {
        "schedule": schedule
    })  # fmt: skip


def revision(
    number: int,
    since: str,
    definition: Job,
    state: JobState = JobState.ACTIVE,
    until: str | None = None,
) -> Revision:
    return Revision(number, at(since), state, definition, at(until) if until else None)


def row(cursor: str, number: int = 1, **fields: Any) -> ScheduleRow:
    return ScheduleRow(KEY, "default", at(cursor), number, **fields)


def planned(
    cursor: str,
    now: str,
    definition: Job | Sequence[Revision],
    *,
    blocker: int | None = None,
    room: Room = ROOMY,
    step: int = STEP,
    away: bool = False,
    **fields: Any,
) -> Plan:
    """The plan of a row whose cursor stands at `cursor`, at `now`."""
    revisions = definition
    if isinstance(revisions, Job):
        revisions = [revision(1, "-9 00:00", revisions)]
    start = row(cursor, revisions[0].revision, **fields)
    return plan(start, revisions, at(now), blocker=blocker, room=room, step=step, away=away)


@contextmanager
def reading_ahead(plan_times: int) -> Iterator[None]:
    """Let the planner read that many plan_times before it searches back from now and counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "READ_AHEAD", plan_times)
        yield


def runs(answer: Plan) -> list[str | None]:
    return [say(run.plan_time) for run in answer.runs]


def skips(answer: Plan) -> list[str]:
    """`reason from-through xcount [by blocker] [rN]`, the revision where it is not 1."""
    said = []
    for skip in answer.skips:
        text = f"{skip.reason} {say(skip.from_plan_time)}"
        if skip.count > 1:
            text += f"-{say(skip.through_plan_time)} x{skip.count}"
        if skip.blocked_by is not None:
            text += f" by {skip.blocked_by}"
        if skip.revision != 1:
            text += f" r{skip.revision}"
        said.append(text)
    return said


def advanced(start: ScheduleRow, answer: Plan) -> ScheduleRow:
    return replace(
        start, planned_through=answer.planned_through, planned_revision=answer.planned_revision
    )


Outcome = tuple[SkipReason | None, int, int | None]  # None: it ran; revision; blocked_by


def outcomes(answer: Plan, exists: Sequence[datetime]) -> list[tuple[datetime, Outcome]]:
    """Each plan_time of the plan and what became of it, in order; ranges are taken apart.

    Fails where a range counts other plan_times than those of `exists` that lie in it.
    """
    found: list[tuple[datetime, Outcome]] = [
        (run.plan_time, (None, run.revision.revision, None)) for run in answer.runs
    ]
    for skip in answer.skips:
        inside = [p for p in exists if skip.from_plan_time <= p <= skip.through_plan_time]
        assert inside, skip
        assert (inside[0], inside[-1]) == (skip.from_plan_time, skip.through_plan_time)
        assert len(inside) == skip.count, skip
        found += [(p, (skip.reason, skip.revision, skip.blocked_by)) for p in inside]
    return sorted(found, key=lambda item: item[0])

"""The search through long outages: bounded, and finding what the whole list would."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from cronledger.rules.cron import Cron, parse
from cronledger.rules.model import Job
from cronledger.rules.planner import Room, plan
from cronledger.rules.plans import ScheduleRow
from tests.unit.support.planning import KEY, ROOMY, advanced, at, job, revision

MONTH = timedelta(days=30)
LONG: list[tuple[str, timedelta, dict[str, Any]]] = [
    ("* * * * * *", MONTH, {"jitter": "900ms", "catch_up": "skip"}),
    ("* * * 1 1 *", 4 * MONTH, {"catch_up": "all", "catch_up_window": "200d"}),
    ("* 0 * * * *", MONTH, {"catch_up": "all", "catch_up_limit": 900, "timezone": "Asia/Tokyo"}),
]


@pytest.fixture
def enumerated(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """Every plan_time that the planner has looked at."""
    seen: list[datetime] = []
    walk = Cron.plan_times

    def counted(self: Cron, after: datetime, through: datetime) -> Iterator[datetime]:
        for plan_time in walk(self, after, through):
            seen.append(plan_time)
            yield plan_time

    monkeypatch.setattr(Cron, "plan_times", counted)
    return seen


@pytest.mark.parametrize(("schedule", "outage", "policies"), LONG)
def test_a_long_outage_is_never_enumerated(
    schedule: str, outage: timedelta, policies: dict[str, Any], enumerated: list[datetime]
) -> None:
    step = 1000
    definition = job(schedule, overlap="allow", **policies)
    now = at("12:34:56.95")
    row = ScheduleRow(KEY, "default", now - outage, 1)
    revisions = [revision(1, "-200 00:00", definition)]
    answer = plan(row, revisions, now, blocker=None, room=ROOMY, step=step)
    assert answer.settled == step
    assert len(enumerated) <= step + 200


@pytest.mark.parametrize(
    ("schedule", "policies"),
    [
        ("* * * * * *", {"catch_up_limit": 3000}),
        ("*/2 * * * * *", {"overlap": "wait"}),
        ("@every 7s", {"jitter": "5s"}),
        ("*/5 6-20 * * 1-5", {"timezone": "Europe/Berlin"}),
    ],
)
def test_the_backlog_that_a_step_leaves_is_not_enumerated(
    schedule: str, policies: dict[str, Any], enumerated: list[datetime]
) -> None:
    """With few slots, each claim plans the backlog again: its cost must not depend on the rest."""
    everything = {"catch_up": "all", "catch_up_window": "100d", "catch_up_limit": 10_000}
    definition = job(schedule, **{"overlap": "allow"} | everything | policies)
    now = at("12:34:56.95")
    place = ScheduleRow(KEY, "default", _newest(definition, now)[-2500], 1)
    revisions = [revision(1, "-200 00:00", definition)]
    answer = plan(place, revisions, now, blocker=None, room=Room(10, None, None))
    started = len(answer.runs)
    for _ in range(20):
        place, now = advanced(place, answer), now + timedelta(seconds=1)
        enumerated.clear()
        answer = plan(place, revisions, now, blocker=None, room=Room(10, None, None))
        started += len(answer.runs)
        assert answer.next_plan_time is not None
        assert answer.next_plan_time < now - timedelta(minutes=5)
        assert len(enumerated) <= 250
    assert started == (21 if definition.overlap == "wait" else 210)


def _newest(definition: Job, now: datetime) -> list[datetime]:
    cron = parse(str(definition.schedule), timezone=definition.timezone)
    found: list[datetime] = []
    while len(found) < 2501:  # backwards, a day at a time
        found[:0] = cron.plan_times(now - timedelta(days=1), now)
        now -= timedelta(days=1)
    return found

"""Seconds in which too many executions of a queue are due."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronledger.rules.collisions import SAMPLE, collisions
from cronledger.rules.model import Handler, Job

NOON = datetime(2027, 6, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


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
    over = external("c", ends_at=NOON)
    late = external("d", starts_at=NOON + 2 * DAY)
    assert collided(external("a"), external("b"), over, late) == []


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

"""Deadlines of a job are the same whether one transaction or several compute them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import pytest

from cronledger.rules.deadline_plan import LATER, DeadlinePlan, Planning, Scope, reach
from cronledger.rules.model import JobState, Revision, ScopeKey
from cronledger.rules.plans import Retirement
from tests.marks import first_short
from tests.unit.support.planning import TICK, at, job, revision

MINUTE = timedelta(minutes=1)
END = at("12:00")


class Added(NamedTuple):
    scope: ScopeKey
    plan_time: datetime
    instant: datetime | None
    found_at: datetime


def scopes() -> list[Scope]:
    """Scopes that exist from the beginning, appear later, or retire and return."""
    found = [Scope(ScopeKey("job", "shard", f"s{n}"), at("09:00"), ()) for n in range(7)]
    found[2] = found[2]._replace(created_at=at("10:31"))
    found[4] = found[4]._replace(retirements=(Retirement(at("10:15"), at("10:44")),))
    found[6] = found[6]._replace(retirements=(Retirement(at("10:20"), None),))
    return found


def added(plan: DeadlinePlan, now: datetime) -> list[Added]:
    return [Added(x.scope, x.plan_time, x.instant, now) for x in plan.added]


def whole(revisions: Sequence[Revision], most: int) -> tuple[list[Added], datetime]:
    """The deadlines of steps that compute all scopes at once, and the last cursor."""
    found: list[Added] = []
    cursor = now = at("10:00")
    while now < END:
        planning = Planning(revisions, cursor, now, most)
        planning.add(scopes())
        plan = planning.plan()
        assert plan.next_at is not None and plan.next_at <= now + LATER
        found += added(plan, now)
        cursor, now = plan.through, max(now + TICK, plan.next_at)
    return found, cursor


def parts(revisions: Sequence[Revision], most: int, size: int) -> tuple[list[Added], datetime]:
    """The same in passes whose transactions compute `size` scopes each, a second apart."""
    found: list[Added] = []
    cursor = now = at("10:00")
    while now < END:
        upto = reach(revisions, scopes()[0].key, cursor, now, most)
        plan, following = None, None
        for begin in range(0, len(scopes()), size):
            now += timedelta(seconds=1)
            part = scopes()[begin : begin + size]
            planning = Planning(revisions, cursor, now, most, upto=upto, following=following)
            planning.add(part)
            plan = planning.part(part[-1].key)
            assert (plan.through, plan.next_at, plan.upto) == (cursor, now, upto)
            if begin + size >= len(scopes()):
                plan = planning.plan()
            following = plan.following
            found += added(plan, now)
        assert plan is not None and plan.next_at is not None
        assert plan.through == upto and plan.next_at <= now + LATER
        cursor, now = upto, max(now, plan.next_at)
    return found, cursor


REVISIONS = {
    "plain": [revision(1, "09:00", job("*/3 * * * *", start_by="1m"))],
    "delayed": [revision(1, "09:00", job("*/3 * * * *", finish_by="5m", schedule_delay="2m"))],
    "jitter": [revision(1, "09:00", job("*/3 * * * *", finish_by="20m", jitter="15m"))],
    "hashed": [revision(1, "09:00", job("H/10 * * * *", finish_by="20m", jitter="2m"))],
    "edited": [
        revision(1, "09:00", job("*/3 * * * *", finish_by="20m")),
        revision(2, "10:20", job("*/4 * * * *", finish_by="10m", jitter="3m")),
        revision(3, "10:40", job("*/4 * * * *", finish_by="10m"), JobState.PAUSED),
        revision(4, "11:00", job("*/2 * * * *", finish_by="10m")),
    ],
    "invalid": [
        revision(1, "09:00", job("*/3 * * * *", finish_by="20m")),
        revision(2, "10:20", job("61 * * * *", finish_by="20m")),
    ],
}


@pytest.mark.parametrize(("most", "size"), first_short([(4, 3), (1, 7), (4, 1), (1000, 3)]))
@pytest.mark.parametrize("name", REVISIONS)
def test_a_pass_adds_the_deadlines_that_one_transaction_adds(
    name: str, most: int, size: int
) -> None:
    one, cursor = whole(REVISIONS[name], most)
    several, reached = parts(REVISIONS[name], most, size)
    upto = min(cursor, reached)
    assert upto >= at("11:00") or name == "invalid"
    expected = sorted(x[:3] for x in one if x.plan_time <= upto)
    assert sorted(x[:3] for x in several if x.plan_time <= upto) == expected
    assert len(expected) == len(set(expected)) > 20


@pytest.mark.parametrize("name", ["plain", "delayed", "jitter", "hashed"])
def test_a_deadline_is_added_when_it_passes_and_its_plan_time_is_due(name: str) -> None:
    revisions = REVISIONS[name]
    lag = revisions[0].job.schedule_delay + revisions[0].job.jitter
    for found, _ in (whole(revisions, 1000), parts(revisions, 1000, 3)):
        for one in found:
            assert one.instant is not None
            assert one.found_at <= max(one.instant, one.plan_time + lag) + MINUTE

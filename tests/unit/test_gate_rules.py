"""Gates: the interval, the length of the wait, and what keeps a gate closed.

The interval is that of the audit, which finds it with code of its own.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from random import Random

import pytest

from cronledger.audit.dates import Dates
from cronledger.audit.gates import _following, _previous
from cronledger.audit.walk import Definition, due_at, walk
from cronledger.rules.calendars import Calendar
from cronledger.rules.gates import SkippedUpstream, Upstream, UpstreamExecution, missing, wait_of
from cronledger.rules.model import ExecutionKey, JobState, Revision, ScopeKey
from tests.marks import first_short
from tests.unit.support.planning import job

KEY = ScopeKey("j", "global", "global")
UPSTREAM = ScopeKey("extract", "global", "global")
NOON = datetime(2030, 5, 7, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)
SCHEDULES = (
    "30 2 * * *", "*/20 * * * *", "15 0-3 L * *", "0 18 1,15 * *", "30 23 * * 1-5", "@every 45m",
    "0 0 29 2 *", "* * * * *",
)  # fmt: skip
ZONES = ("Europe/Berlin", "UTC", "America/New_York", "Australia/Lord_Howe")


def revision(
    schedule: str = "@hourly", calendar: Calendar | None = None, **fields: object
) -> Revision:
    if calendar is not None:
        fields["calendar"] = calendar.name
    return Revision(
        1, NOON - 400 * DAY, JobState.ACTIVE, job(schedule, **fields), None, calendar=calendar
    )


def drawn(random: Random, around: datetime) -> Calendar | None:
    """Return a calendar that excludes a third of the days near an instant, or None."""
    if random.random() < 0.5:
        return None
    first = around.date() - timedelta(days=40)
    days = [first + timedelta(days=n) for n in range(80)]
    excluded: dict[date, str] = {day: "closed" for day in days if random.random() < 0.3}
    return Calendar("c", 1, date(2000, 1, 1), date(2060, 12, 31), excluded)


@pytest.mark.parametrize("zone", first_short(ZONES))
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_interval_and_the_wait_are_those_of_the_audit(schedule: str, zone: str) -> None:
    random = Random(f"{schedule} {zone}")
    compared = 0
    for _ in range(12):
        start = datetime(2024, 1, 1, tzinfo=UTC) + random.randrange(3_000) * DAY
        calendar = None if schedule.startswith("0 0 29") else drawn(random, start)
        owner = revision(schedule, calendar, timezone=zone, jitter="10s", schedule_delay="5s")
        dates = None if calendar is None else Dates("c", calendar.through, calendar.excluded)
        definition = Definition(
            schedule, timezone=zone, dates=dates, jitter=owner.job.jitter,
            schedule_delay=owner.job.schedule_delay,
        )  # fmt: skip
        span = 1500 * DAY if schedule.startswith("0 0 29") else 40 * DAY
        for plan_time in islice(walk(definition, KEY, start, start + span), 4):
            found = wait_of(ExecutionKey(*KEY, plan_time), owner)
            following = _following(definition, KEY, plan_time)
            assert following is not None
            length = due_at(definition, KEY, following) - due_at(definition, KEY, plan_time)
            assert found == (_previous(definition, KEY, plan_time), max(length, timedelta(0)))
            compared += 1
    assert compared > 0


def test_wait_at_most_and_a_repeated_firing_keep_the_interval() -> None:
    owner = revision(wait_at_most="90m")
    assert wait_of(ExecutionKey(*KEY, NOON), owner) == (NOON - HOUR, 1.5 * HOUR)
    assert wait_of(ExecutionKey(*KEY, NOON + 3 * TICK), revision()).after == NOON - HOUR


def state(
    planned: bool = True,
    unfinished: UpstreamExecution | None = None,
    skips: Sequence[SkippedUpstream] = (),
    backfilled: Sequence[datetime] = (),
    *,
    parked: str | None = None,
    gone: bool = False,
) -> Upstream:
    return Upstream(
        UPSTREAM, planned, False, parked, gone, unfinished, skips, frozenset(backfilled)
    )


def skip(first: datetime, last: datetime, number: int = 1) -> SkippedUpstream:
    return SkippedUpstream(first, last, "missed", number)


def lacking(upstream: Upstream, owner: Revision | None) -> tuple[datetime | None, str] | None:
    found = missing(upstream, NOON - HOUR, NOON, lambda *_: owner)
    return None if found is None else (found.plan_time, found.text)


def test_what_is_not_planned_yet_is_missing() -> None:
    noon = "2030-05-07T12:00:00Z"
    assert lacking(state(planned=False), None) == (None, f"extract is not planned up to {noon} yet")
    parked = f"extract is not planned up to {noon}: it is parked (paused)"
    assert lacking(state(planned=False, parked="paused"), None) == (None, parked)
    assert lacking(state(planned=False, gone=True), None) == (None, "extract is retired")


def test_an_execution_that_has_not_succeeded_is_missing() -> None:
    failed = UpstreamExecution(NOON, "FAILED", "boom", NOON + HOUR, True)
    text = "extract 2030-05-07T12:00:00Z FAILED at 2030-05-07T13:00:00Z (boom), and is retried"
    assert lacking(state(unfinished=failed), None) == (NOON, text)


@pytest.mark.parametrize(
    ("first", "last", "plan_time"),
    [
        (NOON, NOON, NOON),
        (NOON - HOUR, NOON - HOUR, None),  # the interval begins after it
        (NOON - 5 * HOUR, NOON + 5 * HOUR, NOON),
        (NOON + HOUR, NOON + 2 * HOUR, None),
    ],
)
def test_a_skip_is_missing_only_within_the_interval(
    first: datetime, last: datetime, plan_time: datetime | None
) -> None:
    found = lacking(state(skips=[skip(first, last)]), revision())
    assert (found and found[0]) == plan_time
    # A job of 09:30 has no plan_time in the interval.
    assert lacking(state(skips=[skip(first, last)]), revision("30 9 * * *")) is None


def test_a_backfill_replaces_a_skip() -> None:
    upstream = state(skips=[skip(NOON, NOON)], backfilled=[NOON])
    assert lacking(upstream, revision()) is None


LOST = job("@hourly").model_copy(update={"calendar": "lost"})


@pytest.mark.parametrize("owner", [None, Revision(1, NOON - DAY, JobState.ACTIVE, LOST, None)])
def test_a_skip_whose_revision_cannot_be_read_keeps_the_gate_closed(owner: Revision | None) -> None:
    for first, last in ((NOON, NOON), (NOON - DAY, NOON + DAY), (NOON - DAY, NOON - HOUR + TICK)):
        assert lacking(state(skips=[skip(first, last)]), owner) is not None
    assert lacking(state(skips=[skip(NOON - DAY, NOON - HOUR)]), owner) is None

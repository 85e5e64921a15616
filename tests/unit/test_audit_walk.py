"""The audit's own walk: definitions, neighbours, clock changes, and agreement with the planner.

`test_cron` and `test_cron_zones` compare the two for their examples, and around clock changes.
"""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronledger.audit.walk import Definition, clock_change, due_at, neighbours, walk
from cronledger.rules import plan_times
from cronledger.rules.model import Handler, Job, ScopeKey
from tests.unit.support.schedules import KEY, agree, utc

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)


def test_a_walk_keeps_to_its_range_and_its_lifetime() -> None:
    bounded = Definition(
        "@hourly", starts_at=utc("2026-01-01T02:00"), ends_at=utc("2026-01-01T04:00")
    )
    found = list(walk(bounded, KEY, utc("2026-01-01"), utc("2026-02-01")))
    assert found == [utc("2026-01-01T02:00") + n * HOUR for n in range(3)]
    # (after, through]
    assert list(walk(bounded, KEY, found[0], found[1])) == [found[1]]
    assert list(walk(bounded, KEY, found[1], found[1])) == []
    assert list(walk(replace(bounded, schedule=None), KEY, found[0], found[1])) == []


# --- definitions -------------------------------------------------------------------------------

STORED = {
    **{"schedule": "@daily", "timezone": "Asia/Tokyo", "day_or": True, "dst_gap": "skip"},
    **{"dst_fold": "both", "starts_at": "2026-01-01T01:00:00.5+01:00", "ends_at": None},
    **{"schedule_delay": "00:01:30", "jitter": "00:00:00", "handler": "sql", "grace": "00:01:00"},
}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1 day", DAY),
        ("1 day 02:03:04.000005", DAY + timedelta(hours=2, minutes=3, seconds=4, microseconds=5)),
        ("1 year 2 mons -1 days", 424 * DAY), ("1 day -01:30:00", timedelta(hours=22, minutes=30)),
        ("876600:00:00", 876_600 * HOUR), ("2 days +01:30:00", 2 * DAY + timedelta(minutes=90)),
    ],
)  # fmt: skip
def test_intervals_of_the_style_postgres(written: str, expected: timedelta) -> None:
    assert Definition.from_revision({**STORED, "jitter": written}, {}).jitter == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jitter", "1 day soon"), ("jitter", "-00:00:01"), ("jitter", "PT1M"), ("jitter", ""),
        ("jitter", None), ("schedule", 5), ("timezone", None), ("starts_at", "today"),
        ("ends_at", "2026-01-01T00:00:00"),
    ],
)  # fmt: skip
def test_an_unreadable_definition_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"definition: {name} = "):
        Definition.from_revision({**STORED, name: value}, {})


# --- around an instant -------------------------------------------------------------------------


def test_neighbours_are_the_plan_times_around_an_instant() -> None:
    leap = Definition("0 0 29 2 *", "Europe/Berlin")
    before, after = utc("2024-02-28T23:00"), utc("2028-02-28T23:00")
    assert neighbours(leap, KEY, utc("2026-01-01")) == (before, after)
    assert neighbours(leap, KEY, after) == (after, utc("2032-02-28T23:00"))
    assert neighbours(leap, KEY, after - TICK) == (before, after)
    assert neighbours(leap, KEY, utc("2026-01-01"), bound=300 * DAY) == (None, None)
    ended = Definition("* * * * * *", ends_at=utc("2020-01-01"))
    assert neighbours(ended, KEY, utc("2026-01-01")) == (utc("2020-01-01"), None)
    coming = Definition("@every 90s", starts_at=utc("2027-01-01"))
    assert neighbours(coming, KEY, utc("2026-01-01")) == (None, utc("2027-01-01"))


def test_clock_change_finds_a_change_within_a_day() -> None:
    change = clock_change("Australia/Lord_Howe", utc("2026-10-03T20:00:00.7"))
    assert change is not None
    assert change == (utc("2026-10-03T15:30"), timedelta(hours=10.5), timedelta(hours=11))
    assert clock_change("Australia/Lord_Howe", change.instant + DAY) == change
    assert clock_change("Australia/Lord_Howe", change.instant - DAY) == change
    assert clock_change("Australia/Lord_Howe", change.instant + DAY + TICK) is None
    assert clock_change("Pacific/Apia", utc("2011-12-30T10:00")) == (
        utc("2011-12-30T10:00"),
        timedelta(hours=-10),
        timedelta(hours=14),
    )


@given(
    jitter=st.timedeltas(timedelta(0), timedelta(days=36525)),
    delay=st.timedeltas(timedelta(0), DAY),
    plan_time=st.datetimes(timezones=st.just(UTC)).filter(lambda at: 1900 < at.year < 9000),
    scope=st.text(min_size=1, max_size=5),
)
@pytest.mark.long
def test_due_at_is_that_of_the_planner(
    jitter: timedelta, delay: timedelta, plan_time: datetime, scope: str
) -> None:
    job = Job(name="report", handler=Handler.SQL, schedule_delay=delay, jitter=jitter)
    key = ScopeKey("report", "tenant", scope)
    mine = Definition("@daily", schedule_delay=delay, jitter=jitter)
    assert due_at(mine, key, plan_time) == plan_times.due_at(job, key, plan_time)


# --- agreement with the planner ----------------------------------------------------------------

BOUNDS = {"second": (0, 59), "minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12)}
NAMES = {"month": ["jan", "FEB", "oct", "dec"], "weekday": ["sun", "Mon", "fri", "sat"]}
MARKS = {"day": ["L", "5-L", "15W", "w31", "?"], "weekday": ["mon#2", "L5", "fri-mon#1", "?"]}


@st.composite
def fields(draw: st.DrawFn, kind: str) -> str:
    """One field in any syntax, some of it out of bounds."""
    low, high = BOUNDS.get(kind, (0, 7))
    number = st.integers(max(low - 1, 0), high + 1).map(str) | st.integers(low, high).map(str)
    value = number | st.sampled_from(NAMES[kind]) if kind in NAMES else number
    step = st.integers(0, 20)
    item = st.one_of(
        value,
        st.just("*"),
        st.builds("{}-{}".format, value, value),
        st.builds("*/{}".format, step),
        st.builds("{}/{}".format, value, step),
        st.builds("{}-{}/{}".format, value, value, step),
        st.sampled_from(MARKS.get(kind, ["*"])),
    )
    written: str = draw(
        st.one_of(
            st.just("*"),
            item,
            st.lists(item, min_size=2, max_size=3).map(",".join),
            st.just("H"),
            st.builds("H/{}".format, step),
            st.builds("h({}-{})/{}".format, number, number, step),
            st.builds("H({}-{})".format, number, number),
        )
    )
    return written


policies = st.fixed_dictionaries(
    {
        "day_or": st.booleans(),
        "dst_gap": st.sampled_from(["shift", "skip"]),
        "dst_fold": st.sampled_from(["first", "both"]),
    }
)


@pytest.mark.slow
@settings(max_examples=200)
@given(
    written=st.tuples(
        fields("second"),
        st.sampled_from(["0 0", "H 0", "59 H", "7-3/50 12"]),
        fields("day"),
        fields("month"),
        fields("weekday"),
    ).map(" ".join)
    | st.text(max_size=20),
    scope=st.integers(0, 99).map(str),
    start=st.dates(date(1999, 12, 1), date(2035, 1, 1)),
    policy=policies,
)
def test_any_text_is_read_or_refused_as_by_the_planner(
    written: str, scope: str, start: date, policy: dict[str, Any]
) -> None:
    after = utc(start.isoformat())
    key = ScopeKey("report", "tenant", scope)
    agree(written, after, after + 400 * DAY, key=key, **policy)

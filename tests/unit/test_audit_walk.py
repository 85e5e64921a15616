"""The audit's own walk: DESIGN's examples, tables of zones, and agreement with the planner."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib import resources
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronledger.audit.walk import Definition, clock_change, due_at, neighbours, walk
from cronledger.rules import cron, timeline
from cronledger.rules.model import Handler, Job, ScopeKey

KEY = ScopeKey("report", "global", "global")
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def times(after: str, through: str, schedule: str, timezone: str = "UTC", **policy: Any) -> str:
    """The plan_times in [after, through], as 'MM-DD HH:MM[:SS]', comma separated."""
    found = walk(Definition(schedule, timezone, **policy), KEY, utc(after) - TICK, utc(through))
    return ", ".join(f"{t:%m-%d %H:%M:%S}".removesuffix(":00") for t in found)


@pytest.mark.parametrize(
    ("schedule", "timezone", "on", "expected"),
    [
        # the examples of the rules
        ("30 2 * * *", "America/New_York", "2026-03-08", "03-08 07:00"),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03", "10-03 15:30"),
        ("30 1 * * *", "America/New_York", "2026-11-01", "11-01 05:30"),
        # gaps: several swallowed fire once, with what falls on the instant after it too
        ("0/15 2 * * *", "Europe/Berlin", "2026-03-29", "03-29 01:00"),
        ("*/15 2 * * *", "Europe/Berlin", "2026-03-29", ""),
        ("0,30 2,3 * * *", "Europe/Berlin", "2026-03-29", "03-29 01:00, 03-29 01:30"),
        ("*/30 2-3 * * *", "Europe/Berlin", "2026-03-29", "03-29 01:00, 03-29 01:30"),
        ("30 0 * * *", "America/Santiago", "2026-09-06", "09-06 04:00"),
        ("59 23 5 9 *", "America/Santiago", "2026-09-06", "09-06 03:59"),
        ("0 1 * * *", "Africa/Cairo", "2026-04-23", "04-23 22:00"),
        # folds
        ("30 23 * * *", "America/Santiago", "2026-04-05", "04-05 02:30"),
        ("20/40 1 * * *", "Australia/Lord_Howe", "2026-04-04", "04-04 14:20"),
        # a gap of a day swallows its date for good
        ("30 0 30 12 *", "Pacific/Apia", "2011-12-30", ""),
        ("0 12 * * *", "Pacific/Apia", "2011-12-30", "12-30 22:00"),
    ],
)
def test_plan_times_of_a_date_with_a_clock_change(
    schedule: str, timezone: str, on: str, expected: str
) -> None:
    end = (utc(on) + DAY - TICK).replace(tzinfo=None).isoformat()
    assert times(on, end, schedule, timezone) == expected


def test_elapsed_time_goes_on_through_gap_and_fold() -> None:
    lord_howe = times("2026-04-04T14:00", "2026-04-04T16:10", "*/20 * * * *", "Australia/Lord_Howe")
    assert lord_howe == (
        "04-04 14:00, 04-04 14:20, 04-04 14:40, 04-04 15:10, 04-04 15:30, 04-04 15:50, 04-04 16:10"
    )
    new_york = times("2026-03-08T04:00", "2026-03-08T10:00", "0 */2 * * *", "America/New_York")
    assert new_york == "03-08 05:00, 03-08 08:00, 03-08 10:00"
    berlin = times("2026-10-25T00:00", "2026-10-25T02:00", "*/30 2 * * *", "Europe/Berlin")
    assert berlin == "10-25 00:00, 10-25 00:30, 10-25 01:00, 10-25 01:30"
    # The seconds field never makes elapsed time, nor does '*' further inside a field.
    fixed = times("2026-10-25T00:00", "2026-10-25T02:00", "*/30 30 2 * * *", "Europe/Berlin")
    assert fixed == "10-25 00:30, 10-25 00:30:30"
    inside = times("2026-10-25T00:00", "2026-10-25T02:00", "0,*/30 2,* * * *", "Europe/Berlin")
    assert inside == "10-25 00:00, 10-25 00:30, 10-25 02:00"


def test_policies_of_gap_and_fold() -> None:
    def on(day: str, schedule: str, timezone: str, **policy: Any) -> str:
        return times(f"{day}T00:00", f"{day}T23:59", schedule, timezone, **policy)

    assert on("2026-03-29", "30 2 * * *", "Europe/Berlin", dst_gap="skip") == ""
    assert on("2026-10-25", "30 2 * * *", "Europe/Berlin", dst_fold="both") == (
        "10-25 00:30, 10-25 01:30"
    )
    # In order, though the second pass of the one date comes after the first of the next.
    assert on("2026-04-05", "30 0,23 * * *", "America/Santiago", dst_fold="both") == (
        "04-05 02:30, 04-05 03:30, 04-05 04:30"
    )
    assert on("2026-04-04", "45 1 * * *", "Australia/Lord_Howe", dst_fold="both") == (
        "04-04 14:45, 04-04 15:15"
    )


def test_grid_bounds_and_no_schedule() -> None:
    assert times("2026-01-01", "2026-01-01T00:20", "@every 11m", "Asia/Tokyo") == (
        "01-01 00:05, 01-01 00:16"
    )
    assert times("2026-01-01", "2026-01-01T02:00", "@Every PT1H30M") == "01-01 00:00, 01-01 01:30"
    assert times("2026-01-01", "2026-01-08", "@weekly") == "01-04 00:00"
    bounded = Definition(
        "@hourly", starts_at=utc("2026-01-01T02:00"), ends_at=utc("2026-01-01T04:00")
    )
    found = list(walk(bounded, KEY, utc("2026-01-01"), utc("2026-02-01")))
    assert found == [utc("2026-01-01T02:00") + n * HOUR for n in range(3)]
    # (after, through]
    assert list(walk(bounded, KEY, found[0], found[1])) == [found[1]]
    assert list(walk(bounded, KEY, found[1], found[1])) == []
    assert list(walk(replace(bounded, schedule=None), KEY, found[0], found[1])) == []


def test_hash_is_a_contract() -> None:
    def at(schedule: str, job: str = "report", scope: str = "global") -> str:
        key = ScopeKey(job, "global", scope)
        found = walk(Definition(schedule), key, utc("2025-12-31"), utc("2026-03-01"))
        return f"{next(found):%m-%d %H:%M:%S}"

    assert at("H H(1-5) H(1-28) * *") == "01-01 02:23:00"
    assert at("H/9 H * * * *", scope="eu") == "12-31 00:57:08"
    assert len({at("H H 31 12 *", job=f"job{n}") for n in range(40)}) > 30


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("61 * * * *", "minute field '61'"),
        ("* * 0 * *", "day of month field '0'"),
        ("* * 0-5 * *", "day of month field '0-5'"),
        ("* * * * mon#6", "day of week field 'mon#6'"),
        ("* * * * 1,2#3", "plain weekdays with"),
        ("*/0 * * * *", "a step of 0"),
        ("1,,2 * * * *", "minute field"),
        ("1,h * * * *", "minute field"),
        ("h(9-3) * * * *", "3 is not above 9"),
        ("0 0 15w,3 * *", "day of month field"),
        ("0 0 31 4,6 *", "no named month has a day 31"),
        ("* * * *", "4 fields"),
        ("", "1 fields"),
        ("@reboot", "1 fields"),
        ("r * * * *", "minute field"),
        ("* " * 200, "400 characters"),
        ("@every", "is invalid"),
        ("@every 500ms", "whole seconds"),
        ("@every 20000d", "up to ten years"),
    ],
)
def test_an_invalid_schedule_is_refused(schedule: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("(", r"\(")):
        walk(Definition(schedule), KEY, utc("2026-01-01"), utc("2026-01-02"))


def test_refuses_unknown_zones_and_policies() -> None:
    for options, name in (
        ({"timezone": "Mars/Base"}, "timezone 'Mars/Base'"),
        ({"timezone": "../zoneinfo/UTC"}, "timezone"),
        ({"dst_gap": "run"}, "dst_gap 'run'"),
        ({"dst_fold": "last"}, "dst_fold 'last'"),
    ):
        with pytest.raises(ValueError, match=name):
            walk(Definition("@daily", **options), KEY, utc("2026-01-01"), utc("2026-01-02"))  # type: ignore[arg-type]


# --- definitions -------------------------------------------------------------------------------

STORED = {
    **{"schedule": "@daily", "timezone": "Asia/Tokyo", "day_or": True, "dst_gap": "skip"},
    **{"dst_fold": "both", "starts_at": "2026-01-01T01:00:00.5+01:00", "ends_at": None},
    **{"schedule_delay": "00:01:30", "jitter": "00:00:00", "handler": "sql", "grace": "00:01:00"},
}


def test_reads_a_revision() -> None:
    assert Definition.from_revision(STORED) == Definition(
        "@daily", "Asia/Tokyo", dst_gap="skip", dst_fold="both",
        starts_at=utc("2026-01-01T00:00:00.5"), schedule_delay=timedelta(seconds=90),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("00:00:00", timedelta(0)),
        ("1 day", DAY),
        ("1 day 02:03:04.000005", DAY + timedelta(hours=2, minutes=3, seconds=4, microseconds=5)),
        ("1 year 2 mons -1 days", 424 * DAY),
        ("1 day -01:30:00", timedelta(hours=22, minutes=30)),
        ("876600:00:00", 876_600 * HOUR),
        ("2 days +01:30:00", 2 * DAY + timedelta(minutes=90)),
        ("00:01:30", timedelta(seconds=90)),
    ],
)
def test_intervals_of_the_style_postgres(written: str, expected: timedelta) -> None:
    assert Definition.from_revision({**STORED, "jitter": written}).jitter == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jitter", "soon"), ("jitter", "1 day soon"), ("jitter", "-00:00:01"), ("jitter", "PT1M"),
        ("jitter", "@ 1 min"), ("jitter", "1 2:03:04"), ("jitter", "5"), ("jitter", ""),
        ("jitter", 5), ("jitter", None), ("schedule", 5), ("timezone", None),
        ("starts_at", "today"), ("ends_at", "2026-01-01T00:00:00"),
    ],
)  # fmt: skip
def test_an_unreadable_definition_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"definition: {name} = "):
        Definition.from_revision({**STORED, name: value})


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
def test_due_at_is_that_of_the_planner(
    jitter: timedelta, delay: timedelta, plan_time: datetime, scope: str
) -> None:
    job = Job(name="report", handler=Handler.SQL, schedule_delay=delay, jitter=jitter)
    key = ScopeKey("report", "tenant", scope)
    mine = Definition("@daily", schedule_delay=delay, jitter=jitter)
    assert due_at(mine, key, plan_time) == timeline.due_at(job, key, plan_time)


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


@lru_cache
def zone_names() -> list[str]:
    return resources.files("tzdata").joinpath("zones").read_text("ascii").split()


@lru_cache(maxsize=256)
def changes(zone: str, year: int) -> list[datetime]:
    middays = (datetime(year, 1, 1, 12, tzinfo=UTC) + n * DAY for n in range(1, 365, 2))
    found = (clock_change(zone, midday) for midday in middays)
    return [change.instant for change in found if change] or [utc(f"{year}-02-28T23:00")]


@st.composite
def windows(draw: st.DrawFn) -> tuple[str, datetime, datetime, str]:
    """A zone, (after, through] near a clock change, and the local hour of it."""
    zone = draw(st.sampled_from(zone_names()))
    change = draw(st.sampled_from(changes(zone, draw(st.integers(2000, 2035)))))
    after = change - draw(st.integers(0, 20 * 60)) * MINUTE
    hour = draw(st.integers(-2, 1))
    local = timeline.EPOCH + (change - timeline.EPOCH) + (clock_offset(zone, change) + hour * HOUR)
    return zone, after, change + draw(st.integers(0, 30 * 60)) * MINUTE, str(local.hour)


def clock_offset(zone: str, change: datetime) -> timedelta:
    found = clock_change(zone, change)
    return found.after if found else timedelta(0)


policies = st.fixed_dictionaries(
    {
        "day_or": st.booleans(),
        "dst_gap": st.sampled_from(["shift", "skip"]),
        "dst_fold": st.sampled_from(["first", "both"]),
    }
)


def both_answers(
    schedule: str, key: ScopeKey, after: datetime, through: datetime, **policy: Any
) -> Iterator[list[datetime] | None]:
    """The planner's answer, then the audit's; None where the schedule is refused."""
    job, kind, scope = key
    try:
        planned = cron.parse(schedule, job=job, scope=f"{kind}/{scope}", **policy)
        yield list(planned.plan_times(after, through))
    except ValueError:
        yield None
    try:
        yield list(walk(Definition(schedule, **policy), key, after, through))
    except ValueError:
        yield None


@pytest.mark.slow
@settings(max_examples=200)
@given(
    window=windows(),
    written=st.tuples(
        st.just("") | st.sampled_from(["0 ", "15 ", "*/20 ", "7,50 "]),
        fields("minute"),
        fields("hour") | st.none(),
        st.sampled_from(["* * *", "*/2 * *", "* * 0-5", "1-20 * 6"]),
    ),
    policy=policies,
)
def test_agrees_with_the_planner_around_clock_changes(
    window: tuple[str, datetime, datetime, str],
    written: tuple[str, str, str | None, str],
    policy: dict[str, Any],
) -> None:
    second, minute, hour, days = written
    zone, after, through, near = window
    schedule = f"{second}{minute} {hour or near} {days}"
    planned, walked = both_answers(schedule, KEY, after, through, timezone=zone, **policy)
    assert walked == planned


@pytest.mark.slow
@settings(max_examples=200)
@given(
    written=st.tuples(
        fields("second"),
        st.sampled_from(["0 0", "H 0", "59 H", "7-3/50 12"]),
        fields("day"),
        fields("month"),
        fields("weekday"),
    ).map(" ".join),
    scope=st.integers(0, 99).map(str),
    start=st.dates(date(1999, 12, 1), date(2035, 1, 1)),
    policy=policies,
)
def test_agrees_with_the_planner_on_every_field(
    written: str, scope: str, start: date, policy: dict[str, Any]
) -> None:
    after = utc(start.isoformat())
    key = ScopeKey("report", "tenant", scope)
    planned, walked = both_answers(written, key, after, after + 400 * DAY, **policy)
    assert walked == planned


def test_a_walk_is_lazy() -> None:
    found = walk(Definition("* * * * * *"), KEY, utc("1950-01-01"), utc("9000-01-01"))
    assert len(list(islice(found, 10))) == 10

"""What an edit of a calendar changes, against all firings of the years one by one."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronledger.rules.calendar_changes import (
    DateChange,
    Dated,
    FiringChange,
    date_changes,
    firing_changes,
    in_words,
    without_calendar,
)
from cronledger.rules.calendars import Calendar
from cronledger.rules.model import Handler, Job

SINCE = datetime(2026, 11, 26, 12, tzinfo=UTC)
NEW_YEAR = date(2027, 1, 1)


def calendar(excluded: Mapping[date, str], through: int = 2031, first: int = 2025) -> Calendar:
    return Calendar("de", 1, date(first, 1, 1), date(through, 12, 31), excluded)


def job(schedule: str, on_excluded: str = "skip", **values: Any) -> Job:
    return Job(
        name="j", handler=Handler.EXTERNAL, schedule=schedule, calendar="de",
        on_excluded=on_excluded, timezone=values.pop("timezone", "Europe/Berlin"), **values,
    )  # fmt: skip


def enumerated(dated: Dated, through: datetime) -> Iterator[datetime]:
    return dated.firings(SINCE, through).plan_times()


def by_year(before: Dated, after: Dated) -> tuple[FiringChange, ...]:
    """Return what `firing_changes` does, from a list of all firings."""
    zone = ZoneInfo(after.job.timezone)
    ends = [x.calendar.through for x in (before, after) if x.calendar is not None]
    last = min([date(2027, 12, 31), *ends]) + timedelta(days=1)
    through = datetime(last.year, last.month, last.day, tzinfo=zone) - timedelta(microseconds=1)
    old, new = ({*enumerated(x, through)} for x in (before, after))
    gone, more = (
        Counter(x.astimezone(zone).year for x in found) for found in (old - new, new - old)
    )
    return tuple(
        FiringChange(year, gone[year], more[year])
        for year in (2026, 2027)
        if gone[year] or more[year]
    )


days = st.dates(date(2026, 11, 20), date(2028, 1, 10))
excluded_days = st.dictionaries(days, st.just("x"), max_size=12) | st.builds(
    lambda day, count: {day + timedelta(days=n): "x" for n in range(count)},
    days, st.integers(1, 40),
)  # fmt: skip
schedules = st.sampled_from([
    "0 18 L * *", "30 7 * * *", "0 12 15 * *", "0 9 * * 1", "0 */6 * * 1-5", "30 2 * * *",
    "0 0 29 2,3 *", "0 18 24-26 12 *",
])  # fmt: skip
modes = st.sampled_from(["skip", "next", "previous"])
zones = st.sampled_from(["Europe/Berlin", "America/New_York", "Pacific/Auckland", "UTC"])
ends = st.sampled_from([2026, 2027, 2031])


@settings(max_examples=300, deadline=None)
@given(
    schedule=schedules, old=excluded_days, new=excluded_days, was=modes, now=modes, zone=zones,
    through=ends, is_new=st.booleans(),
)  # fmt: skip
@pytest.mark.long
def test_firing_changes_are_those_of_all_firings(
    *, schedule: str, old: dict[date, str], new: dict[date, str], was: str, now: str, zone: str,
    through: int, is_new: bool,
) -> None:  # fmt: skip
    new = {day: name for day, name in new.items() if day.year <= through}
    after = Dated(job(schedule, now, timezone=zone), calendar(new, through))
    before = Dated(job(schedule, was, timezone=zone), calendar(old))
    if is_new:
        before = without_calendar(after.job)
    assert firing_changes(before, after, SINCE) == by_year(before, after)


def test_every_is_counted_by_the_dates_of_its_zone() -> None:
    after = Dated(job("@every 1h"), calendar({date(2027, 3, 28): "Easter Sunday"}))
    before = Dated(after.job, calendar({}))
    assert firing_changes(before, after, SINCE) == (FiringChange(2027, 23, 0),)  # a clock change


def test_starts_at_and_ends_at_bound_the_firings() -> None:
    excluded = {date(2027, month, 1): "First" for month in range(1, 13)}
    bounded = {"starts_at": "2027-03-01T00:00:00Z", "ends_at": "2027-05-31T00:00:00Z"}
    after = Dated(job("@daily", **bounded), calendar(excluded))
    changes = firing_changes(without_calendar(after.job), after, SINCE)
    assert changes == (FiringChange(2027, 2, 0),)  # April and May: midnight is earlier in UTC


def test_a_schedule_that_is_invalid_or_missing_has_no_firings() -> None:
    for schedule in ("61 * * * *", None):
        found = job("@daily").model_copy(update={"schedule": schedule})
        after = Dated(found, calendar({NEW_YEAR: "x"}))
        assert firing_changes(without_calendar(found), after, SINCE) == ()


def test_date_changes_are_those_of_the_common_years() -> None:
    before = calendar({NEW_YEAR: "New Year", date(2025, 5, 1): "x", date(2027, 5, 1): "May"})
    after = calendar(
        {NEW_YEAR: "New Year's Day", date(2032, 1, 1): "x", date(2027, 5, 2): "Bridge day"},
        through=2032, first=2026,
    )  # fmt: skip
    assert list(date_changes(before, after)) == [
        DateChange(NEW_YEAR, "New Year", "New Year's Day"),
        DateChange(date(2027, 5, 1), "May", None),
        DateChange(date(2027, 5, 2), None, "Bridge day"),
    ]


@pytest.mark.parametrize(
    ("change", "on_excluded", "words"),
    [
        (FiringChange(2027, 7, 7), "next", "7 firings of 2027 move"),
        (FiringChange(2027, 1, 0), "previous", "1 firing of 2027 moves"),
        (
            FiringChange(2027, 1, 2), "skip",
            "1 firing of 2027 will be skipped, and 2 firings of 2027 will no longer be skipped",
        ),
    ],
)  # fmt: skip
def test_a_change_in_words(change: FiringChange, on_excluded: str, words: str) -> None:
    assert in_words(change, on_excluded) == words

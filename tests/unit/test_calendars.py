"""Calendars: the days of a schedule under one, its gaps and folds, and the end of what is known."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronledger.rules import timeline, zones
from cronledger.rules.calendar_days import DaySet, IncludedDays, KnownDays, MovedDays, OnExcluded
from cronledger.rules.calendars import Calendar, date_of, day_of
from cronledger.rules.cron import CronError, parse
from cronledger.rules.cron_fields import EVERY_DAY, Fields, read
from cronledger.rules.model import Job, JobState, Parked, Revision, ScopeKey, SkipReason
from cronledger.rules.planner import plan
from cronledger.rules.plans import Plan, ScheduleRow
from tests.unit.support.planning import KEY, ROOMY, job

DAY = timedelta(days=1)


def calendar(
    excluded: dict[str, str] | None = None, first: str = "2027-01-01", through: str = "2027-12-31"
) -> Calendar:
    dates = {date.fromisoformat(day): name for day, name in (excluded or {}).items()}
    return Calendar("de", 1, date.fromisoformat(first), date.fromisoformat(through), dates)


def weekends(first: date, last: date) -> dict[str, str]:
    days = (first + n * DAY for n in range((last - first).days + 1))
    return {str(day): f"{day:%A}" for day in days if day.isoweekday() > 5}


YEAR = weekends(date(2027, 1, 1), date(2027, 12, 31)) | {
    "2027-12-24": "Christmas Eve", "2027-12-27": "Boxing Day (observed)",
}  # fmt: skip
"""The weekends of 2027, with a run of four days: Friday 24 to Monday 27 December."""


def times(
    schedule: str, excluded: dict[str, str], on_excluded: OnExcluded, days: str,
    zone: str = "Europe/Berlin",
) -> list[str]:  # fmt: skip
    """Return the local firings of `days`, `first/last`, each with the name of an excluded day."""
    first, last = map(date.fromisoformat, days.split("/"))
    cron = parse(schedule, timezone=zone, calendar=calendar(excluded), on_excluded=on_excluded)
    noon = [datetime(day.year, day.month, day.day, 12, tzinfo=UTC) for day in (first, last)]
    found = cron.with_excluded(noon[0] - 2 * DAY, noon[1] + 2 * DAY)
    local = [(at.astimezone(zones.named(zone)), name) for at, name in found]
    return [
        f"{at:%d %H:%M}" + (f" {name}" if name else "")
        for at, name in local
        if first <= at.date() <= last
    ]


CASES: list[tuple[str, OnExcluded, str, list[str]]] = [
    # Thursday 23 to Tuesday 28 December, of which 24 to 27 are excluded.
    ("0 18 * * *", "skip", "2027-12-23/2027-12-28", [
        "23 18:00", "24 18:00 Christmas Eve", "25 18:00 Saturday", "26 18:00 Sunday",
        "27 18:00 Boxing Day (observed)", "28 18:00"]),
    ("0 18 * * *", "next", "2027-12-23/2027-12-28", ["23 18:00", "28 18:00"]),
    ("0 18 * * *", "previous", "2027-12-23/2027-12-28", ["23 18:00", "28 18:00"]),
    ("0 18 24 * *", "next", "2027-12-23/2027-12-28", ["28 18:00"]),
    ("0 9,18 26 * *", "previous", "2027-12-23/2027-12-28", ["23 09:00", "23 18:00"]),
    # The last business day of a month, and the first of the next.
    ("0 18 L * *", "previous", "2027-10-28/2027-11-02", ["29 18:00"]),
    ("0 18 1 * *", "next", "2027-05-01/2027-05-04", ["03 18:00"]),
    ("@every 12h", "skip", "2027-12-23/2027-12-24", [
        "23 01:00", "23 13:00", "24 01:00 Christmas Eve", "24 13:00 Christmas Eve"]),
    # Dates before `first` are included; after `through` nothing fires.
    ("0 18 * * *", "skip", "2026-12-31/2027-01-03", [
        "31 18:00", "01 18:00", "02 18:00 Saturday", "03 18:00 Sunday"]),
    ("0 18 * * *", "next", "2027-12-30/2028-01-03", ["30 18:00", "31 18:00"]),
]  # fmt: skip


@pytest.mark.parametrize(("schedule", "on_excluded", "days", "fires"), CASES)
def test_the_table_of_cases(
    schedule: str, on_excluded: OnExcluded, days: str, fires: list[str]
) -> None:
    assert times(schedule, YEAR, on_excluded, days) == fires


def test_a_shifted_time_has_the_date_that_the_schedule_names() -> None:
    """In Nuuk, Saturday 2027-03-27 23:00 is followed by Sunday 00:00."""
    zone, days = "America/Nuuk", "2027-03-26/2027-03-28"
    saturday, sunday = {"2027-03-27": "Saturday"}, {"2027-03-28": "Sunday"}
    assert times("30 23 * * *", saturday, "skip", days, zone) == [
        "26 23:30", "28 00:00 Saturday", "28 23:30",
    ]  # fmt: skip
    assert times("30 23 * * *", sunday, "skip", days, zone) == [
        "26 23:30", "28 00:00", "28 23:30 Sunday",
    ]  # fmt: skip
    # Two dates meet at 00:00. One of them is included, unless both are excluded.
    twice = "0,30 0,23 * * *"
    one = times(twice, sunday, "skip", days, zone)
    assert one[-4:-2] == ["28 00:00", "28 00:30 Sunday"]
    assert "28 00:00 Sunday" in times(twice, saturday | sunday, "skip", days, zone)
    # A moved firing is at the same wall time, and in a gap it is shifted as always.
    friday = {"2027-03-26": "Friday"}
    assert times("30 23 26 * *", friday, "next", days, zone) == ["28 00:00"]


def test_both_passes_of_a_repeated_time_have_the_date_that_they_show() -> None:
    days = "2027-10-30/2027-10-31"
    excluded = {"2027-10-31": "Sunday"}
    assert times("30 * * * *", excluded, "skip", days)[24:29] == [
        "31 00:30 Sunday", "31 01:30 Sunday", "31 02:30 Sunday", "31 02:30 Sunday",
        "31 03:30 Sunday",
    ]  # fmt: skip


# --- sets of days ---------------------------------------------------------------------------------

MODES: list[OnExcluded] = ["skip", "next", "previous"]
SCHEDULES = ("0 0 * * *", "0 0 * * 1", "0 0 * * 6,0", "0 0 1,15 * *", "0 0 L * *", "0 0 15W 2 *")


@settings(max_examples=200, derandomize=True)
@given(st.sampled_from(SCHEDULES), st.integers(0, 2**40 - 1), st.sampled_from(MODES))
@pytest.mark.long
def test_the_days_are_those_of_a_search_through_all_dates(
    schedule: str, bits: int, on_excluded: OnExcluded
) -> None:
    first = day_of(date(2027, 1, 20))
    excluded = {date_of(first + bit): "x" for bit in range(40) if bits >> bit & 1}
    under = Calendar("c", 1, date_of(first), date_of(first + 44), excluded)
    named = read(schedule, day_or=True, hash_id=b"")
    assert isinstance(named, Fields)
    plain = {day for day in range(first - 60, first + 120) if named.days.count(day, day + 1)}
    moved = {_moved(day, under, on_excluded) for day in plain}
    expected = sorted(day for day in moved if first - 50 <= day <= under.last_day)
    days: DaySet = IncludedDays(named.days, under)
    if on_excluded != "skip":
        days = MovedDays(named.days, under, on_excluded)
    assert _listed(days, first - 50) == expected
    for low in range(first - 50, first + 50, 7):
        for length in (0, 1, 2, 9, 60):
            inside = [day for day in expected if low <= day < low + length]
            assert days.count(low, low + length) == len(inside)
    if len(expected) > 1:
        gaps = [later - day for day, later in pairwise(expected)]
        assert days.shortest() <= min(gaps)


def _moved(day: int, under: Calendar, on_excluded: OnExcluded) -> int:
    step = {"skip": 0, "next": 1, "previous": -1}[on_excluded]
    while under.excluded_day(date_of(day)) is not None:
        if not step:
            return -(10**6)
        day += step
    return day


def _listed(days: DaySet, low: int) -> list[int]:
    found = []
    day = days.on_or_after(low)
    while day is not None:
        found.append(day)
        day = days.on_or_after(day + 1)
    return found


def test_known_days_end_with_the_calendar() -> None:
    under = calendar({"2027-12-31": "New Year's Eve"})
    days = KnownDays(EVERY_DAY, under)
    assert days.on_or_after(under.last_day) == under.last_day
    assert days.on_or_after(under.last_day + 1) is None
    assert days.count(under.last_day - 1, under.last_day + 9) == 2


# --- the planner ------------------------------------------------


def planned(now: str, cursor: str, **fields: Any) -> Plan:
    """Plan a job under YEAR in Berlin, at a local time."""
    zone = zones.named("Europe/Berlin")
    at, start = (datetime.fromisoformat(text).replace(tzinfo=zone) for text in (now, cursor))
    fields = {"schedule": "0 18 * * *", "timezone": "Europe/Berlin", "calendar": "de"} | fields
    excluded = YEAR | fields.pop("more", {})
    revision = Revision(
        1, datetime(2026, 1, 1, tzinfo=UTC), JobState.ACTIVE, job(**fields),
        calendar=calendar(excluded),
    )  # fmt: skip
    row = ScheduleRow(KEY, "default", start.astimezone(UTC), 1)
    return plan(row, [revision], at.astimezone(UTC), blocker=None, room=ROOMY)


def local(at: datetime | None) -> str | None:
    return None if at is None else f"{at.astimezone(zones.named('Europe/Berlin')):%Y-%m-%d %H:%M}"


def test_an_excluded_plan_time_is_skipped_once_it_is_due_with_the_name_of_its_day() -> None:
    before = planned("2027-12-24 12:00", "2027-12-23 20:00", schedule_delay=timedelta(hours=1))
    assert (before.skips, before.runs) == ((), ())
    assert local(before.next_due_at) == "2027-12-24 19:00"
    assert local(before.next_plan_time) == "2027-12-28 18:00"
    after = planned("2027-12-26 19:00", "2027-12-23 20:00", schedule_delay=timedelta(hours=1))
    assert [(skip.reason, skip.detail, skip.count) for skip in after.skips] == [
        (SkipReason.CALENDAR, "Christmas Eve", 1), (SkipReason.CALENDAR, "Saturday", 1),
        (SkipReason.CALENDAR, "Sunday", 1),
    ]  # fmt: skip
    assert local(after.next_plan_time) == "2027-12-28 18:00"


def test_the_end_of_a_calendar_is_an_error_at_the_first_firing_after_it() -> None:
    waiting = planned("2028-01-01 12:00", "2027-12-31 18:00")
    assert (waiting.parked, waiting.spec_error, waiting.next_plan_time) == (None, None, None)
    assert local(waiting.next_due_at) == "2028-01-01 18:00"
    ended = planned("2028-01-01 18:00", "2027-12-31 18:00")
    assert ended.parked is Parked.SPEC_ERROR
    assert ended.next_due_at is None
    assert ended.spec_error == (
        "calendar 'de' ends on 2027-12-31; apply its file or App again, or call set_calendar() with"
        " a later date"
    )


def test_a_firing_that_would_be_moved_past_the_end_is_unknown() -> None:
    yearly: dict[str, Any] = {"schedule": "0 18 31 12 *", "on_excluded": "next"}
    yearly["more"] = {"2027-12-31": "New Year's Eve"}
    done = planned("2027-12-31 17:00", "2027-12-30 20:00", **yearly)
    assert local(done.next_due_at) == "2027-12-31 18:00"
    ended = planned("2027-12-31 18:00", "2027-12-30 20:00", **yearly)
    assert (ended.runs, ended.skips, ended.parked) == ((), (), Parked.SPEC_ERROR)


@pytest.mark.parametrize("hour", range(1, 24))
def test_the_latest_plan_time_that_is_caught_up_is_an_included_one(hour: int) -> None:
    """Whatever parts of the time before now the search for it looks at."""
    done = planned(
        f"2027-12-26 {hour:02}:30", "2027-12-20 00:00", schedule="0 * * * *",
        catch_up_window=9 * DAY,
    )  # fmt: skip
    assert [local(run.plan_time) for run in done.runs] == ["2027-12-23 23:00"]


def test_a_calendar_that_cannot_be_applied_is_an_error() -> None:
    with pytest.raises(CronError, match="on_excluded 'next': it cannot be combined with @every"):
        parse("@every 5m", calendar=calendar(), on_excluded="next")
    revision = Revision(1, datetime(2026, 1, 1, tzinfo=UTC), JobState.ACTIVE, job(calendar="de"))
    row = ScheduleRow(KEY, "default", datetime(2027, 1, 1, tzinfo=UTC), 1)
    done = plan(row, [revision], datetime(2027, 1, 2, tzinfo=UTC), blocker=None, room=ROOMY)
    assert done.parked is Parked.SPEC_ERROR
    assert "the ledger does not have the dates" in (done.spec_error or "")


def test_a_long_excluded_backlog_is_neither_searched_nor_counted_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job of each second: the newest active plan_time lies before four excluded days."""
    seen: list[datetime] = []

    def due_at(_job: Job, _key: ScopeKey, at: datetime) -> datetime:
        seen.append(at)
        return at

    monkeypatch.setattr(timeline, "due_at", due_at)
    done = planned(
        "2027-12-27 23:59:59", "2027-12-23 23:00", schedule="* * * * * *", catch_up="all",
        overlap="allow", catch_up_window=timedelta(days=9),
    )  # fmt: skip
    assert done.settled == 10_000
    assert {skip.reason for skip in done.skips} == {SkipReason.MISSED, SkipReason.CALENDAR}
    assert len(done.runs) == 100
    assert len(seen) < 11_000

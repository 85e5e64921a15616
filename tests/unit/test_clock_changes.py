"""What a clock change does to a schedule, compared with the schedule on a clock without any."""

from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from cronledger.rules.cron import parse
from cronledger.rules.firings import change_note

START, END = datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
# The gap and the fold of 2027, as local times, and the instants at which they begin.
CHANGES = {
    "Europe/Berlin": (("2027-03-28T02:00", "2027-03-28T01:00Z"),
                      ("2027-10-31T02:00", "2027-10-31T01:00Z"), 60),
    "Australia/Lord_Howe": (("2027-10-03T02:00", "2027-10-02T15:30Z"),
                            ("2027-04-04T01:30", "2027-04-03T15:00Z"), 30),
}  # fmt: skip
SCHEDULES = ["30 2 * * *", "0-59 1-2 * * *", "15,45 2 * * 0", "5 1,2 * * 1-5"]


@pytest.mark.parametrize("zone", CHANGES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_it_names_the_local_times_of_gaps_and_folds(zone: str, schedule: str) -> None:
    *changes, minutes = CHANGES[zone]
    plain = parse(schedule)  # its local times, as if the clock never changed
    expected = {}
    for first, at in changes:
        start = datetime.fromisoformat(first).replace(tzinfo=UTC) - timedelta(seconds=1)
        named = list(plain.plan_times(start, start + timedelta(minutes=minutes)))
        if named:
            expected[datetime.fromisoformat(at)] = (named[0].replace(tzinfo=None), len(named))
    found = list(parse(schedule, timezone=zone).clock_changes(START, END))
    assert {change.at: (change.first, change.count) for change in found} == expected
    assert [change.at for change in found] == sorted(expected)
    for change in found:  # in (after, through]
        assert list(parse(schedule, timezone=zone).clock_changes(START, change.at))[-1] == change
        assert change not in parse(schedule, timezone=zone).clock_changes(change.at, END)


@pytest.mark.parametrize(
    ("gap", "fold", "effects"),
    [("shift", "first", ["shifted", "once"]), ("skip", "both", ["skipped", "twice"])],
)
def test_the_effect_is_that_of_the_firings(
    gap: Literal["shift", "skip"], fold: Literal["first", "both"], effects: list[str]
) -> None:
    cron = parse("30 2 * * *", timezone="Europe/Berlin", dst_gap=gap, dst_fold=fold)
    changes = list(cron.clock_changes(START, END))
    assert [change.effect for change in changes] == effects
    counts = [
        cron.count(change.at - timedelta(hours=2), change.at + timedelta(hours=2))
        for change in changes
    ]
    assert counts == ([1, 1] if gap == "shift" else [0, 2])
    # A gap before a named time adds no firing.
    named = parse("30 2,3 * * *", timezone="Europe/Berlin", dst_gap=gap)
    assert named.count(changes[0].at, changes[0].at + timedelta(hours=1)) == 1


@pytest.mark.parametrize("schedule", ["*/5 * * * *", "0 * * * *", "@every 90s", "@hourly"])
def test_a_schedule_that_keeps_elapsed_time_has_none(schedule: str) -> None:
    assert list(parse(schedule, timezone="Europe/Berlin").clock_changes(START, END)) == []


def test_a_long_gap_skips_what_it_contains() -> None:
    """Samoa had no 30 December 2011."""
    cron = parse("0 12 * * *", timezone="Pacific/Apia")
    start = datetime(2011, 12, 1, tzinfo=UTC)
    (gap,) = cron.clock_changes(start, start + timedelta(days=60))
    assert (gap.first.isoformat(), gap.effect) == ("2011-12-30T12:00:00", "skipped")


def test_people_read_a_sentence() -> None:
    one = parse("30 2 * * *", timezone="Europe/Berlin").clock_changes(START, END)
    assert [change_note(change) for change in one] == [
        "clock change: 02:30 is skipped; it fires right after the gap",
        "clock change: 02:30 occurs twice; it fires the first time",
    ]
    some = parse("0-9 2 * * *", timezone="Europe/Berlin", dst_gap="skip").clock_changes(START, END)
    assert change_note(next(some)) == (
        "clock change: 10 local times from 02:00 on are skipped; it does not fire"
    )

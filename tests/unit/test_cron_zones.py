"""Clock changes: which UTC instants a schedule names around gaps and folds.

Two judges: a table worked out by hand, and the walk of `verify`, which shares no code with the
planner. The properties compare both around any clock change of any zone.
"""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cronledger.rules import cron, zones
from tests.unit.support.schedules import agree, plan_times, utc

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)


@lru_cache
def zone_bytes(name: str) -> bytes:
    return resources.files("tzdata.zoneinfo").joinpath(*name.split("/")).read_bytes()


@lru_cache
def all_zones() -> list[str]:
    return sorted(resources.files("tzdata").joinpath("zones").read_text().split())


# --- by hand -------------------------------------------------------------------------------------

# (zone, schedule, start, hours, expected): '>' marks a firing shifted out of a gap.
TABLE: list[tuple[str, str, str, int, str]] = [
    ("UTC", "30 2 * * *", "2026-03-29 00:00", 48, "29 02:30, 30 02:30"),
    # Berlin: 2026-03-29 02:00 -> 03:00 at 01:00Z; 2026-10-25 03:00 -> 02:00 at 01:00Z
    ("Europe/Berlin", "30 2 * * *", "2026-03-28 00:00", 60, "28 01:30, 29 01:00>, 30 00:30"),
    ("Europe/Berlin", "0,30 2 * * *", "2026-03-28 12:00", 36, "29 01:00>, 30 00:00"),
    ("Europe/Berlin", "0,30 2,3 * * *", "2026-03-28 12:00", 24, "29 01:00, 29 01:30"),
    ("Europe/Berlin", "*/15 2 * * *", "2026-03-28 12:00", 24, ""),
    ("Europe/Berlin", "0 * * * *", "2026-03-28 23:30", 3, "29 00:00, 29 01:00, 29 02:00"),
    ("Europe/Berlin", "30 2 * * *", "2026-10-24 12:00", 24, "25 00:30"),
    ("Europe/Berlin", "*/30 2 * * *", "2026-10-25 00:29", 1, "25 00:30, 25 01:00"),
    ("Europe/Berlin", "30 0-23 * * *", "2026-10-25 00:00", 3, "25 00:30, 25 02:30"),
    # New York: 2026-03-08 02:00 -> 03:00 at 07:00Z
    ("America/New_York", "30 1-2 * * *", "2026-03-08 00:00", 24, "08 06:30, 08 07:00>"),
    # Lord Howe: 2026-10-04 02:00 -> 02:30 at 15:30Z; 2026-04-05 02:00 -> 01:30 at 15:00Z
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03 00:00", 24, "03 15:30>"),
    ("Australia/Lord_Howe", "*/20 * * * *", "2026-04-04 14:30", 1, "04 14:40, 04 15:10, 04 15:30"),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04 00:00", 24, "04 14:45"),
    # Santiago: 2026-09-06 00:00 -> 01:00 at 04:00Z; 2026-04-05 00:00 -> 04-04 23:00 at 03:00Z
    ("America/Santiago", "0 0 6 9 *", "2026-09-05 12:00", 24, "06 04:00>"),
    ("America/Santiago", "0 0 * * 6", "2026-09-05 12:00", 24, ""),
    ("America/Santiago", "30 23 * * *", "2026-04-04 12:00", 24, "05 02:30"),
    # Cairo: 2026-04-24 00:00 -> 01:00 at 22:00Z; 2026-10-30 00:00 -> 10-29 23:00 at 21:00Z
    ("Africa/Cairo", "0 0 * * *", "2026-04-23 12:00", 24, "23 22:00>"),
    # Dublin has negative DST in winter; Casablanca leaves its summer for Ramadan
    ("Europe/Dublin", "30 1 * * *", "2026-10-24 12:00", 24, "25 00:30"),
    ("Africa/Casablanca", "30 2 * * *", "2025-04-05 12:00", 24, "06 02:00>"),
    # changes of the standard offset: Pyongyang -30 min and back
    ("Asia/Pyongyang", "45 23 * * *", "2015-08-14 12:00", 24, "14 14:45"),
    ("Asia/Pyongyang", "45 23 * * *", "2018-05-04 12:00", 24, "04 15:00>"),
    # two hours are a gap, three are a correction (Casey 2009), and so is a day (Apia 2011)
    ("Antarctica/Troll", "30 1,2 * * *", "2026-03-28 12:00", 24, "29 01:00>"),
    ("Antarctica/Casey", "30 3 * * *", "2009-10-17 12:00", 24, ""),
    ("Pacific/Apia", "0 12 30 12 *", "2011-12-29 00:00", 72, ""),
    ("Pacific/Apia", "0 12 * * *", "2011-12-29 12:00", 48, "29 22:00, 30 22:00"),
    # a day lived twice (Kwajalein 1969) runs once
    ("Pacific/Kwajalein", "0 12 * * *", "1969-09-29 12:00", 60, "30 01:00, 02 00:00"),
]


def listed(firings: Iterator[cron.Firing]) -> str:
    return ", ".join(f"{f.plan_time:%d %H:%M}{'>' if f.shifted else ''}" for f in firings)


@pytest.mark.parametrize(("zone", "text", "start", "hours", "expected"), TABLE)
def test_firings_around_clock_changes_are_those_worked_out_by_hand(
    zone: str, text: str, start: str, hours: int, expected: str
) -> None:
    after = utc(start)
    through = after + hours * HOUR
    spec = cron.parse(text, timezone=zone)
    assert listed(spec.firings(after, through)) == expected
    found = plan_times(text, after, through, timezone=zone)
    assert found == [f.plan_time for f in spec.firings(after, through)]


@pytest.mark.parametrize(
    ("zone", "text", "options", "start", "expected"),
    [
        ("Europe/Berlin", "30 2 * * *", {"dst_gap": "skip"}, "2026-03-28 12:00", ""),
        ("Europe/Berlin", "30 2 * * *", {"dst_fold": "both"}, "2026-10-24 12:00", "00:30 01:30"),
        ("Australia/Lord_Howe", "45 1 * * *", {"dst_fold": "both"}, "2026-04-04 00:00",
         "14:45 15:15"),
        # In order, though the second pass of the one date comes after the first of the next.
        ("America/Santiago", "30 0,23 * * *", {"dst_fold": "both"}, "2026-04-05 00:00",
         "02:30 03:30 04:30"),
    ],
)  # fmt: skip
def test_dst_gap_and_dst_fold_choose_the_firings(
    zone: str, text: str, options: Any, start: str, expected: str
) -> None:
    after = utc(start)
    found = plan_times(text, after, after + 24 * HOUR, timezone=zone, **options)
    assert " ".join(f"{plan_time:%H:%M}" for plan_time in found) == expected


def test_every_second_of_a_fold_and_none_of_a_gap() -> None:
    for change in (utc("2026-03-29 01:00"), utc("2026-10-25 01:00")):
        start = change - timedelta(seconds=5)
        found = plan_times("* * * * * *", start, change + MINUTE, timezone="Europe/Berlin")
        first = change - timedelta(seconds=4)
        assert found == [first + timedelta(seconds=n) for n in range(65)]


def test_firings_tell_local_time_and_fold() -> None:
    spec = cron.parse("30 2 * * *", timezone="Europe/Berlin", dst_fold="both")
    first, second, plain = spec.firings(utc("2026-10-24 12:00"), utc("2026-10-26 12:00"))
    assert (first.local.isoformat(), first.local.fold) == ("2026-10-25T02:30:00+02:00", 0)
    assert (second.local.isoformat(), second.local.fold) == ("2026-10-25T02:30:00+01:00", 1)
    assert (first.folded, second.folded, plain.folded) == (True, True, False)
    (shifted,) = spec.firings(utc("2026-03-28 12:00"), utc("2026-03-29 12:00"))
    assert shifted.local.isoformat() == "2026-03-29T03:00:00+02:00"
    assert (shifted.shifted, shifted.folded) == (True, False)


# --- zone data -----------------------------------------------------------------------------------


@lru_cache
def recorded_changes(name: str) -> list[int]:
    """Read the offset changes since 1900 out of the zone's TZif file, 64-bit block."""
    data = zone_bytes(name)

    def header(at: int) -> tuple[int, ...]:
        return struct.unpack(">6l", data[at + 20 : at + 44])

    isut, isstd, leap, times, types, chars = header(0)
    at = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    _, _, _, times, types, _ = header(at)
    at += 44
    instants = struct.unpack(f">{times}q", data[at : at + 8 * times])
    index = data[at + 8 * times : at + 9 * times]
    at += 9 * times
    offsets = [struct.unpack(">l", data[at + 6 * n : at + 6 * n + 4])[0] for n in range(types)]
    walk = [offsets[0], *(offsets[n] for n in index)]
    found = [t for t, (a, b) in zip(instants, pairwise(walk), strict=True) if a != b]
    return [t for t in found if t >= -2_208_988_800]


def test_no_zone_changes_twice_within_the_days_between_probes() -> None:
    closest = min(b - a for name in all_zones() for a, b in pairwise(recorded_changes(name)))
    assert closest > 2 * 86_400


@pytest.mark.parametrize("name", ["Asia/Gaza", "America/Boa_Vista", "Africa/Casablanca"])
def test_finds_every_recorded_change(name: str) -> None:
    recorded = [t for t in recorded_changes(name) if 0 <= t < 2_145_916_800]
    low, high = -1, 2_145_916_800
    pieces = list(zones.pieces(zones.named(name), low, high))
    assert [start for start, _, _, jump in pieces if jump] == recorded
    assert [end for _, end, *_ in pieces[:-1]] == [start for start, *_ in pieces[1:]]
    assert (pieces[0][0], pieces[-1][1]) == (low, high)


# --- properties ----------------------------------------------------------------------------------


@lru_cache
def changes_of(name: str, year: int) -> list[datetime]:
    """The changes of the year, rounded up to the hour; its beginning if there are none."""
    hours = [datetime.fromtimestamp(-(-t // 3600) * 3600, UTC) for t in recorded_changes(name)]
    return [hour for hour in hours if hour.year == year] or [datetime(year, 1, 1, tzinfo=UTC)]


@st.composite
def around_changes(draw: st.DrawFn) -> tuple[str, str, datetime]:
    """Draw a zone, a schedule busy near one of its clock changes, and that change (to the hour)."""
    zone = draw(st.sampled_from(all_zones()))
    change = draw(st.sampled_from(changes_of(zone, draw(st.integers(1975, 2036)))))
    near = change.astimezone(zones.named(zone)).hour
    hours = [str((near + shift) % 24) for shift in (-2, -1, 0, 1)]
    minute = draw(st.sampled_from(["0", "30", "15,45", "*", "*/20", "*/7", "0-59/10", "5,*/20"]))
    hour = draw(st.sampled_from([*hours, ",".join(hours[1:3]), "*", "*/2", "0-23", "0,23"]))
    day = draw(st.sampled_from(["*", "*", "*", "*/2", "1-15", str(change.day)]))
    month = draw(st.sampled_from(["*", "*", "*/2", str(change.month)]))
    weekday = draw(st.sampled_from(["*", "*", "*", "0", "1-5", "5-7", "*/3"]))
    return zone, f"{minute} {hour} {day} {month} {weekday}", change


policies = {"gap": st.sampled_from(["shift", "skip"]), "fold": st.sampled_from(["first", "both"])}


@settings(max_examples=50)
@given(
    case=around_changes(),
    cuts=st.lists(st.timedeltas(-30 * HOUR, 30 * HOUR), min_size=3, max_size=3).map(sorted),
    **policies,
)
def test_a_range_is_the_sum_of_its_parts_and_of_the_next_firings(
    case: tuple[str, str, datetime], cuts: list[timedelta], gap: Any, fold: Any
) -> None:
    zone, text, change = case
    spec = cron.parse(text, timezone=zone, dst_gap=gap, dst_fold=fold)
    a, b, c = (change + cut for cut in cuts)
    whole = list(spec.firings(a, c))
    assert whole == [*spec.firings(a, b), *spec.firings(b, c)]
    assert all(f.plan_time < g.plan_time for f, g in pairwise(whole))
    assert all(a < f.plan_time <= c and f.local.astimezone(UTC) == f.plan_time for f in whole)
    found = plan_times(text, a, c, timezone=zone, dst_gap=gap, dst_fold=fold)
    assert found == [f.plan_time for f in whole]
    asked = a
    for expected in whole[:5]:
        assert spec.next_after(asked) == expected
        assert spec.next_after(expected.plan_time - MICROSECOND) == expected
        asked = expected.plan_time
    for at in (0, len(whole) // 2):  # cutting exactly at a firing leaves it to the left part
        for firing in whole[at : at + 1]:
            assert [f.plan_time for f in spec.firings(a, firing.plan_time)][-1] == firing.plan_time
            assert list(spec.firings(firing.plan_time, c)) == whole[at + 1 :]


@settings(max_examples=100)
@given(
    case=around_changes(),
    seconds=st.sampled_from(["", "", "30 ", "0,45 ", "5-50/7 "]),
    day=st.sampled_from([None, None, "L", "15W", "1,31", "H(1-28)"]),
    cuts=st.tuples(st.timedeltas(-40 * DAY, 3 * DAY), st.timedeltas(-3 * DAY, 40 * DAY)),
    options=st.fixed_dictionaries({"dst_gap": policies["gap"], "dst_fold": policies["fold"]}),
)
@pytest.mark.long
def test_a_count_is_the_number_of_plan_times(
    case: tuple[str, str, datetime],
    seconds: str,
    day: str | None,
    cuts: tuple[timedelta, timedelta],
    options: Any,
) -> None:
    zone, text, change = case
    minute, hour, of_month, *rest = text.split()
    text = seconds + " ".join([minute, hour, day or of_month, *rest])
    spec = cron.parse(text, timezone=zone, job="j", **options)
    after, through = (change + cut for cut in cuts)
    plan_times = list(spec.plan_times(after, through))
    assert spec.count(after, through) == len(plan_times)
    agree(text, change - 3 * HOUR, change + 27 * HOUR, timezone=zone, **options)
    for plan_time in plan_times[: 3 * len(plan_times) : max(1, len(plan_times) // 3)]:
        assert spec.count(plan_time - MICROSECOND, plan_time) == 1
        assert spec.count(plan_time - MICROSECOND, plan_time - MICROSECOND) == 0

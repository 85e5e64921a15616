"""The axis of a local day: every instant has one place on it, and the right wall clock there."""

import contextlib
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cronledger.explain.day.local_day import LocalDay, NoSuchDayError, day_of, neighbour
from cronledger.rules import zones

ZONES = [
    "UTC", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Pacific/Apia",
    "America/St_Johns", "Asia/Kathmandu", "Africa/Casablanca", "America/New_York",
]  # fmt: skip
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)

_START = datetime(1970, 1, 1, tzinfo=UTC)
instants = st.timedeltas(timedelta(0), timedelta(days=68 * 365)).map(lambda after: _START + after)


@given(st.sampled_from(ZONES), instants, st.integers(0, 3600))
@example("America/St_Johns", datetime(2010, 11, 7, 2, 30, 30, tzinfo=UTC), 0)
@example("America/St_Johns", datetime(2010, 11, 7, 2, 31, 30, tzinfo=UTC), 0)
@example("America/Santiago", datetime(2026, 4, 5, 3, 30, tzinfo=UTC), 0)
@example("America/Santiago", datetime(2026, 9, 6, 4, 0, tzinfo=UTC), 0)
@example("Australia/Lord_Howe", datetime(2026, 4, 4, 15, 15, tzinfo=UTC), 0)
def test_every_instant_has_one_place_on_one_day(zone: str, at: datetime, part: int) -> None:
    shown = at.astimezone(zones.named(zone))
    day = LocalDay.of(zone, shown.date())
    assert day_of(zone, at) == shown.date()
    assert at in day
    assert 0 <= day.x(at) < day.hours
    assert day.local(at).isoformat() == shown.isoformat()
    # What the axis is labelled with at this place is what the clock shows.
    left = max((mark for mark in day.hour_marks() if mark.x <= day.x(at)), key=lambda m: m.x)
    gap = [gap for gap in day.gaps if left.x <= gap.x <= day.x(at)]
    whole = datetime.combine(shown.date(), datetime.min.time())
    clock = whole + timedelta(hours=int(left.label[:2])) + (day.x(at) - left.x) * HOUR
    if not gap and day.is_second(at) == left.second:
        assert abs(clock - shown.replace(tzinfo=None)) < SECOND
    for other in (day.day - timedelta(days=1), day.day + timedelta(days=1)):
        with contextlib.suppress(NoSuchDayError):
            assert at not in LocalDay.of(zone, other)
    later = at + SECOND * (1 + part)
    if later in day:
        assert day.x(later) > day.x(at)


def between(day: LocalDay) -> list[tuple[datetime, datetime]]:
    """The parts between the start and the end of a day that belong to another date."""
    return [(one.end, after.start) for one, after in pairwise(day.pieces) if one.end < after.start]


@given(st.sampled_from(ZONES), st.dates(date(1970, 1, 2), date(2037, 12, 30)))
@example("Pacific/Apia", date(2011, 12, 29))
@example("Pacific/Apia", date(2011, 12, 31))
@example("America/St_Johns", date(2010, 11, 6))
@example("America/St_Johns", date(2010, 11, 7))
def test_days_follow_each_other_and_are_as_wide_as_their_parts(zone: str, day: date) -> None:
    try:
        here = LocalDay.of(zone, day)
    except NoSuchDayError:
        assert (zone, day) == ("Pacific/Apia", date(2011, 12, 30))
        return
    widths = sum(((p.end - p.start) / HOUR for p in here.pieces), sum(g.width for g in here.gaps))
    assert here.hours == pytest.approx(widths)
    assert here.hours >= 24
    following = neighbour(zone, day, 1)
    assert following is not None
    assert neighbour(zone, following, -1) == day
    foreign = between(here)
    if not foreign:
        assert here.end <= LocalDay.of(zone, following).end
    for start, end in foreign:
        assert start not in here
        assert end in here
    marks = [mark.x for mark in here.hour_marks()]
    assert marks == sorted(marks)


def test_changes_at_midnight_and_of_half_an_hour_keep_their_places() -> None:
    day = LocalDay.of("America/Santiago", date(2026, 9, 6))
    (gap,) = day.gaps
    assert (gap.x, gap.width, day.x(day.start)) == (0.0, 1.0, 1.0)
    day = LocalDay.of("America/Santiago", date(2026, 4, 4))
    assert day.hours == 25
    assert [day.is_second(day.end - n * HOUR - SECOND) for n in range(2)] == [True, False]
    assert LocalDay.of("Australia/Lord_Howe", date(2026, 4, 5)).hours == 24.5
    (gap,) = LocalDay.of("Australia/Lord_Howe", date(2026, 10, 4)).gaps
    assert (gap.x, gap.width) == (2.0, 0.5)
    # A fold over midnight gives each minute to its date.
    day = LocalDay.of("America/St_Johns", date(2010, 11, 6))
    ((start, end),) = between(day)
    assert (end - start) == timedelta(minutes=1)
    assert start in LocalDay.of("America/St_Johns", date(2010, 11, 7))


def test_a_date_that_does_not_occur_is_refused() -> None:
    with pytest.raises(NoSuchDayError, match="2011-12-30 does not occur in Pacific/Apia"):
        LocalDay.of("Pacific/Apia", date(2011, 12, 30))
    assert neighbour("Pacific/Apia", date(2011, 12, 29), 1) == date(2011, 12, 31)
    with pytest.raises(NoSuchDayError, match="outside"):
        LocalDay.of("UTC", date(1850, 1, 1))

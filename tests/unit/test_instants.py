"""Instants in text: times of a zone that a calendar of a browser can choose."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronledger.rules import zones
from cronledger.rules.instants import InstantError, anchored, iso, parse, wall_time

BERLIN = zones.named("Europe/Berlin")
PLACES = [
    zones.named(name) for name in ("UTC", "Europe/Berlin", "Asia/Kolkata", "America/Santiago")
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-03-29T01:59", "2026-03-29T00:59:00Z"), ("2026-07-01", "2026-06-30T22:00:00Z"),
        ("2026-03-29T03:00:00", "2026-03-29T01:00:00Z"), ("2026-07-01T03:00Z", "2026-07-01T03:00Z"),
        ("2h", "2h"), ("", ""), ("yesterday", "yesterday"),
    ],
)  # fmt: skip
def test_only_a_time_without_an_offset_is_one_of_the_zone(text: str, found: str) -> None:
    assert anchored(text, BERLIN) == found


@pytest.mark.parametrize(
    "text", ["2026-03-29T02:30", "2026-10-25T02:30", "0001-01-01", "9999-12-31"]
)
def test_a_time_that_names_no_instant_is_refused(text: str) -> None:
    with pytest.raises(InstantError):
        anchored(text, BERLIN)


@given(
    at=st.integers(0, 4_102_444_800).map(lambda second: datetime.fromtimestamp(second, UTC)),
    zone=st.sampled_from(PLACES),
)
def test_what_a_calendar_shows_is_read_as_the_same_instant(at: datetime, zone: ZoneInfo) -> None:
    shown = wall_time(iso(at), zone)
    if shown is not None:
        assert parse(anchored(shown, zone)) == at
    assert wall_time(iso(at.replace(microsecond=1)), zone) is None


@pytest.mark.parametrize("text", ["2026-10-25T00:30Z", "2026-10-25T01:30Z", "2h", ""])
def test_a_calendar_cannot_show_every_text(text: str) -> None:
    assert wall_time(text, BERLIN) is None

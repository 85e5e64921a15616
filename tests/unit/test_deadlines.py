"""Deadlines: what their texts mean, over clock changes too."""

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronledger import App
from cronledger.audit.walk import shown_next
from cronledger.rules import deadline_texts, deadlines
from cronledger.rules.problems import ConfigurationError
from cronledger.rules.validation import check
from tests.unit.support.schedules import utc

BERLIN, SANTIAGO, APIA = "Europe/Berlin", "America/Santiago", "Pacific/Apia"


@pytest.mark.parametrize(
    ("text", "zone", "anchor", "expected"),
    [
        ("15m", BERLIN, "2027-03-28T00:50", "2027-03-28T01:05"),
        ("06:00", "UTC", "2027-01-01T06:00", "2027-01-01T06:00"),
        ("06:00", "UTC", "2027-01-01T06:00:00.000001", "2027-01-02T06:00"),
        ("06:00:30", "UTC", "2027-01-01T06:00:01", "2027-01-01T06:00:30"),
        ("00:00", "UTC", "2027-12-31T23:59:59", "2028-01-01T00:00"),
        # Berlin, 2027-03-28: 02:00 to 03:00 does not occur.
        ("02:30", BERLIN, "2027-03-27T22:00", "2027-03-28T01:00"),
        ("02:00", BERLIN, "2027-03-27T22:00", "2027-03-28T01:00"),
        # Berlin, 2026-10-25: 02:00 to 03:00 occurs twice.
        ("02:30", BERLIN, "2026-10-24T22:00", "2026-10-25T00:30"),
        ("02:30", BERLIN, "2026-10-25T00:30:01", "2026-10-25T01:30"),
        ("02:30", BERLIN, "2026-10-25T01:30:01", "2026-10-26T01:30"),
        # Santiago changes at midnight: 2026-09-06 has no 00:30, 2026-04-04 has 23:30 twice.
        ("00:30", SANTIAGO, "2026-09-05T20:00", "2026-09-06T04:00"),
        ("23:30", SANTIAGO, "2026-04-04T20:00", "2026-04-05T02:30"),
        ("23:30", SANTIAGO, "2026-04-05T02:31", "2026-04-05T03:30"),
        # Apia left out the whole of 2011-12-30.
        ("12:00", APIA, "2011-12-30T00:00", "2011-12-30T10:00"),
    ],
)
def test_a_deadline_is_the_first_instant_that_its_text_means(
    text: str, zone: str, anchor: str, expected: str
) -> None:
    assert deadlines.instant(text, utc(anchor), zone) == utc(expected)


walls = st.times().map(lambda t: t.replace(microsecond=0))
instants = st.datetimes(
    datetime(1950, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC)  # noqa: DTZ001
)  # fmt: skip
zones = st.sampled_from([BERLIN, SANTIAGO, "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Cairo"])


@given(walls, instants, zones)
def test_the_independent_search_of_verify_agrees(wall: time, anchor: datetime, zone: str) -> None:
    found = deadlines.instant(f"{wall:%H:%M:%S}", anchor, zone)
    assert found == shown_next(wall, zone, anchor)


@pytest.mark.parametrize(
    ("normal", "text", "expected"),
    [
        *((deadline_texts.normal, *row) for row in (
            ("6:00", "06:00"), (" 06:00:00 ", "06:00"), ("6:00:30", "06:00:30"), ("PT15M", "15m"),
        )),
        *((deadline_texts.normal_expected, *row) for row in (
            ("p95", "p95"), (" 2 * p95 ", "2*p95"), ("1.50*p50", "1.5*p50"), ("1*p99", "p99"),
            ("90s", "1m30s"),
        )),
    ],
)  # fmt: skip
def test_texts_have_a_canonical_form(
    normal: Callable[[str], str], text: str, expected: str
) -> None:
    assert normal(text) == expected


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"start_by": "24:00"}, "start_by = .*use a wall time such as '06:00'"),
        ({"start_by": "6"}, "start_by = .*has no unit"),
        ({"finish_by": "0s"}, "finish_by = \"0s\": is zero"),
        ({"finish_by": "40000d"}, "finish_by = .*is longer than 100 years"),
        ({"expect_duration": "06:00"}, "expect_duration = .*is invalid"),
        ({"expect_duration": 5}, "expect_duration = 5"),
        ({"expect_duration": "0*p95"}, "expect_duration = .*2\\*p95"),
    ],
)  # fmt: skip
def test_a_text_without_a_meaning_is_refused(policy: dict[str, object], message: str) -> None:
    app = App("shop")
    with pytest.raises(ConfigurationError, match=message):
        app.job("* * * * *", name="report", **policy)(lambda: None)  # type: ignore[arg-type]
        check(app.jobs.values())


def test_an_app_declares_them_as_times_and_lengths() -> None:
    app = App("shop")

    @app.job("* * * * *", start_by=time(6), finish_by=timedelta(minutes=15), expect_duration="90s")
    def report() -> None: ...

    job = app.jobs["report"]
    assert (job.start_by, job.finish_by, job.expect_duration) == ("06:00", "15m", "1m30s")

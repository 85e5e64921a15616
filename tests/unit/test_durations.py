"""What people may write as a duration, what is refused, and how durations are written back."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronledger.rules import durations
from cronledger.rules.durations import DurationError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0), ("1h30m", 5400),
        ("1w2d3h4m5s6ms7us", 604_800 + 172_800 + 10_800 + 240 + 5.006007), ("1m500ms", 60.5),
        ("  10s ", 10), ("007s", 7), ("P2W", 1_209_600), ("P1DT12H", 129_600),
        ("PT1M0,000001S", 60.000001),
        ("999999999d", 86_399_999_913_600),
    ],
)  # fmt: skip
def test_durations_are_read(text: str, seconds: float) -> None:
    assert durations.parse(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is invalid"), ("90", "has no unit"), ("-5s", "is invalid"), ("1.5h", "is invalid"),
        ("30m1h", "is invalid"), ("1h1h", "is invalid"), ("1h 30m", "is invalid"),
        ("5M", "is invalid"), ("٣s", "is invalid"), ("P1DT", "not an ISO 8601"),
        ("P1H", "not an ISO 8601"), ("PT1.5H", "not an ISO 8601"), ("P1M", "years or months"),
        ("P0M", "years or months"), ("1000000000d", "too long"), ("9" * 5000 + "s", "too long"),
    ],
)  # fmt: skip
def test_an_invalid_duration_is_refused_with_its_remedy(text: str, problem: str) -> None:
    with pytest.raises(DurationError) as caught:
        durations.parse(text)
    error = caught.value
    assert problem in str(error)
    assert error.value == text
    assert error.remedy in str(error)
    assert len(str(error)) < 250


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"), (timedelta(seconds=90), "1m30s"), (timedelta(hours=24), "1d"),
        (timedelta(days=14), "2w"), (timedelta(days=10), "10d"),
        (timedelta(days=7, seconds=1), "7d1s"), (timedelta(milliseconds=1500), "1s500ms"),
        (timedelta(microseconds=1), "1us"),
    ],
)  # fmt: skip
def test_durations_are_written_in_their_shortest_form(duration: timedelta, text: str) -> None:
    assert durations.format(duration) == text
    with pytest.raises(DurationError, match="negative"):
        durations.format(timedelta(microseconds=-1))


@given(st.timedeltas(min_value=timedelta(0)))
def test_a_written_duration_reads_back(duration: timedelta) -> None:
    assert durations.parse(durations.format(duration)) == duration


@given(st.text(alphabet="0123456789wdhmsuPTYMWDHS.,- ", max_size=12))
def test_any_text_reads_or_is_refused(text: str) -> None:
    try:
        duration = durations.parse(text)
    except DurationError as error:
        assert error.value == text
    else:
        assert durations.parse(durations.format(duration)) == duration >= timedelta(0)

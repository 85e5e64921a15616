"""Progress: what a handler may report, progress lines, and the expected end."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cronledger.engine.commands.progress_lines import LONGEST, ProgressLines
from cronledger.rules.progress import MOST, MOST_TEXT, Progress, checked, described, expected_end
from cronledger.testing import context

BEGAN = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_a_report_is_cut_to_what_can_be_stored_F86() -> None:
    assert checked(120, 100) == Progress(100, 100, None)
    assert checked(0, 0, "") == Progress(0, 0, None)
    text = checked(1, 2, "https://me:secret@host/ " + "x" * 300).text
    assert text is not None
    assert text.startswith("https://me:***@host/ ")
    assert len(text) == MOST_TEXT


@pytest.mark.parametrize(
    ("report", "error"),
    [
        ((-1, 2), "done is -1: give a number from 0"),
        ((1, MOST + 1), "total is"),
        ((True,), "done is True: give the number of units of work, an integer"),
        ((1, 2, 3), "text is 3: give a string"),
    ],
)
def test_a_bad_report_is_refused_F86(report: tuple[Any, ...], error: str) -> None:
    ctx = context()
    with pytest.raises((TypeError, ValueError), match=error):
        ctx.progress(*report)


LINES = (
    b"begin\n::cronledger progress 40/100 pages of a: b\r\n"
    b"not ::cronledger progress 1/2\n::cronledger progress -1/2\n::cronledger progress\n"
    b"::cronledger progress 7\nend\n:"
)


def test_progress_lines_are_found_at_every_split_of_the_output_F86() -> None:
    without = LINES.replace(b"::cronledger progress 40/100 pages of a: b\r\n", b"").replace(
        b"::cronledger progress 7\n", b""
    )
    for split in range(len(LINES) + 1):
        lines, found = ProgressLines(), []
        kept = b""
        for part in (LINES[:split], LINES[split:], b""):
            kept += lines.take(part)
            found.append(lines.fetch())
        assert kept == without
        reports = [x for x in found if x is not None]
        assert reports[-1] == {"done": 7, "total": None, "text": None}
        assert reports[0] in (reports[-1], {"done": 40, "total": 100, "text": "pages of a: b"})


def test_a_long_line_is_output_F86() -> None:
    lines = ProgressLines()
    long = b"::cronledger progress 1/2 " + b"x" * LONGEST
    assert lines.take(long) == long
    assert lines.take(b"\n") + lines.take(b"") == b"\n"
    assert lines.fetch() is None


def test_the_expected_end_follows_the_progress_or_else_the_median_F87() -> None:
    now = BEGAN + 4 * MINUTE
    quarter = (25, 100, BEGAN + 2 * MINUTE)
    assert expected_end(BEGAN, now, 5 * MINUTE, quarter) == BEGAN + 8 * MINUTE
    for no_rate in ((0, 100, now), (100, 100, now), (5, None, now)):
        assert expected_end(BEGAN, now, 5 * MINUTE, no_rate) == BEGAN + 5 * MINUTE
    assert expected_end(BEGAN, now, 3 * MINUTE, None) is None
    assert expected_end(BEGAN, now, None, None) is None
    assert expected_end(BEGAN, now, timedelta.max, None) is None
    assert expected_end(BEGAN, now, None, (1, 2**62, now)) is None


def test_progress_is_described_with_its_share_F86() -> None:
    assert described(4000, 10000, "pages") == "4,000 of 10,000 (40 %): pages"
    assert described(7, None, None) == "7"
    assert described(0, 0, None) == "0 of 0"

"""The instants of the deadlines of plan_times.

A deadline is a wall time in the zone of the job (`06:00`, `06:00:30`) or a duration (`15m`). Its
anchor is the plan_time; of a manual execution it is created_at. A wall time means the first instant
at or after the anchor at which the local clock shows it. A wall time that a clock change leaves out
means the instant of that change. A wall time that occurs twice means its first occurrence that is
not before the anchor.
"""

from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import NamedTuple

from cronledger.rules import zones
from cronledger.rules.deadline_texts import Quantile, parse, parse_expected

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_DAY = 86_400
_SEARCHED = 4 * _DAY
"""A wall time occurs, or is left out, within this, even if the zone leaves out a whole date."""


class Kind(StrEnum):
    """What a deadline is about: the policy that declares it."""

    START_BY = "start_by"
    FINISH_BY = "finish_by"
    EXPECT_DURATION = "expect_duration"


class Deadlines(NamedTuple):
    """The deadlines of one anchor; None where the job declares none.

    `expected`: how long an attempt may run; the database knows what a quantile is. `month`: the
    first day of the local month.
    """

    start_by: datetime | None
    finish_by: datetime | None
    expected: timedelta | Quantile | None
    month: date


def instant(text: str, anchor: datetime, timezone: str) -> datetime | None:
    """Return the deadline `text` of `anchor`, or None if it lies after the year 9999.

    Raises durations.DurationError, or CronError if the zone is unknown.
    """
    found = parse(text)
    try:
        if isinstance(found, timedelta):
            return anchor + found
        return _first_shown(found, anchor, timezone)
    except OverflowError:
        return None


def of(
    anchor: datetime,
    timezone: str,
    *,
    start_by: str | None,
    finish_by: str | None,
    expect_duration: str | None,
) -> Deadlines:
    """Return the deadlines of `anchor`. Raises as `instant` does."""
    expected = None if expect_duration is None else parse_expected(expect_duration)
    return Deadlines(
        None if start_by is None else instant(start_by, anchor, timezone),
        None if finish_by is None else instant(finish_by, anchor, timezone),
        expected,
        anchor.astimezone(zones.named(timezone)).date().replace(day=1),
    )


def _first_shown(wall: time, anchor: datetime, timezone: str) -> datetime:
    zone = zones.named(timezone)
    shown = wall.hour * 3600 + wall.minute * 60 + wall.second
    first = -((_EPOCH - anchor) // _SECOND)  # the first whole second that is not before the anchor
    # From the second before, because the change at the beginning of a piece is not known.
    for start, end, offset, jump in zones.pieces(zone, first - 1, first + _SEARCHED):
        since = max(start, first)
        if jump > 0 and start >= first and (shown - start - offset + jump) % _DAY < jump:
            return _EPOCH + start * _SECOND  # left out by this change
        found = since + (shown - since - offset) % _DAY
        if found < end:
            return _EPOCH + found * _SECOND
    raise AssertionError(f"{wall} does not occur in {timezone} after {anchor}")

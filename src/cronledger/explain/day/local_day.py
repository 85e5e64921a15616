"""A date of a zone: its instants, and where each of them lies on an axis of wall-clock hours.

The axis shows the 24 hours of the clock on the wall. Where the clocks go forward, the hours that do
not occur keep their place as a `Gap`. Where they go back, the hours that occur twice are on the
axis twice. So equal lengths of time have equal widths, and 02:00 to 03:00 is as wide on a day with
a gap as on any other.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Self

from cronledger.rules import zones

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FARTHEST = 2 * _DAY  # from a date's midnight in UTC to its instants, in any zone
FIRST, LAST = date(1900, 1, 2), date(9899, 12, 30)
"""The dates whose plan_times are known."""


class NoSuchDayError(ValueError):
    """The date does not occur in the zone, or lies outside of FIRST to LAST."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part [start, end) of the day with one UTC offset. `x`: hours from the axis' left end.

    `second`: the clock shows these times for the second time, at least at the start.
    """

    start: datetime
    end: datetime
    offset: timedelta
    x: float
    second: bool

    @property
    def local_start(self) -> datetime:
        """The time that the clock shows at the start, without a zone."""
        return _naive(self.start + self.offset)

    @property
    def local_end(self) -> datetime:
        """The time that the clock would show at the end, without a zone."""
        return _naive(self.end + self.offset)


@dataclass(frozen=True, slots=True)
class Gap:
    """Local times [first, until) that do not occur, `width` hours wide at `x`."""

    first: datetime
    until: datetime
    x: float

    @property
    def width(self) -> float:
        """Its width in hours."""
        return (self.until - self.first) / _HOUR


@dataclass(frozen=True, slots=True)
class HourMark:
    """A full hour of the wall clock on the axis. `second`: it is shown for the second time."""

    x: float
    label: str
    second: bool


@dataclass(frozen=True, slots=True)
class LocalDay:
    """The instants of a date in a zone, as `pieces` in their order, and the `gaps` between them.

    `hours`: the width of the axis; 24, and more if a part of the day occurs twice.
    """

    day: date
    timezone: str
    pieces: tuple[Piece, ...]
    gaps: tuple[Gap, ...]
    hours: float

    @classmethod
    def of(cls, timezone: str, day: date) -> Self:
        """Return the date in this zone. Raises NoSuchDayError, or CronError for the zone."""
        zone = zones.named(timezone)
        if not FIRST <= day <= LAST:
            raise NoSuchDayError(f"{day} is outside of {FIRST} to {LAST}")
        midnight, end = datetime.combine(day, time()), datetime.combine(day + _DAY, time())
        base = midnight.replace(tzinfo=UTC)
        parts: list[Piece] = []
        gaps: list[Gap] = []
        x, clock = 0.0, midnight
        for low, high, seconds, _ in zones.pieces(
            zone, _seconds(base - _FARTHEST), _seconds(base + _DAY + _FARTHEST)
        ):
            offset = timedelta(seconds=seconds)
            start = max(_instant(low), (midnight - offset).replace(tzinfo=UTC))
            until = min(_instant(high), (end - offset).replace(tzinfo=UTC))
            if start >= until:
                continue
            local = _naive(start + offset)
            if local > clock:
                gaps.append(Gap(clock, local, x))
                x += (local - clock) / _HOUR
            if parts and parts[-1].end == start and parts[-1].offset == offset:
                joined = parts.pop()
                parts.append(Piece(joined.start, until, offset, joined.x, joined.second))
            else:
                parts.append(Piece(start, until, offset, x, local < clock))
            x += (until - start) / _HOUR
            clock = _naive(until + offset)
        if not parts:
            raise NoSuchDayError(
                f"{day} does not occur in {timezone}: its clocks skipped this date"
            )
        if clock < end:
            gaps.append(Gap(clock, end, x))
            x += (end - clock) / _HOUR
        return cls(day, timezone, tuple(parts), tuple(gaps), x)

    @property
    def start(self) -> datetime:
        """The first instant of the day."""
        return self.pieces[0].start

    @property
    def end(self) -> datetime:
        """The instant after the day."""
        return self.pieces[-1].end

    def __contains__(self, instant: datetime) -> bool:
        """Return whether the instant belongs to this date."""
        return self._piece(instant) is not None

    def x(self, instant: datetime) -> float:
        """Return the place of an instant of the day, in hours from the left end of the axis.

        Raises ValueError for any other instant.
        """
        piece = self._piece(instant)
        if piece is None:
            raise ValueError(f"{instant} is not on {self.day} in {self.timezone}")
        return piece.x + (instant - piece.start) / _HOUR

    def local(self, instant: datetime) -> datetime:
        """Return the instant in the zone of the day. Any instant will do."""
        return instant.astimezone(zones.named(self.timezone))

    def is_second(self, instant: datetime) -> bool:
        """Return whether the clock shows this time of the day for the second time."""
        piece = self._piece(instant)
        if piece is None or not piece.second:
            return False
        index = self.pieces.index(piece)
        shown = _naive(instant + piece.offset)
        return any(one.local_start <= shown < one.local_end for one in self.pieces[:index])

    def second(self, instant: datetime) -> int:
        """Return the whole seconds from the start of the day to any instant."""
        return (instant - self.start) // _SECOND

    def instant(self, second: int) -> datetime:
        """Return the instant so many seconds after the start of the day."""
        return self.start + second * _SECOND

    def hour_marks(self) -> Iterator[HourMark]:
        """Yield the full hours of the wall clock that occur, and both ends of the axis."""
        for piece in self.pieces:
            shown = piece.local_start.replace(minute=0, second=0, microsecond=0)
            while shown < piece.local_end:
                if shown >= piece.local_start:
                    instant = (shown - piece.offset).replace(tzinfo=UTC)
                    yield HourMark(self.x(instant), f"{shown:%H:%M}", self.is_second(instant))
                shown += _HOUR
        yield HourMark(self.hours, "24:00", False)

    def _piece(self, instant: datetime) -> Piece | None:
        index = bisect_right(self.pieces, instant, key=lambda piece: piece.start) - 1
        if index < 0 or instant >= self.pieces[index].end:
            return None
        return self.pieces[index]


def neighbour(timezone: str, day: date, step: int) -> date | None:
    """Return the next date that occurs in the zone, forward (1) or back (-1), or None.

    Raises CronError for an unknown zone.
    """
    found = day + step * _DAY
    while FIRST <= found <= LAST:
        try:
            return LocalDay.of(timezone, found).day
        except NoSuchDayError:
            found += step * _DAY
    return None


def day_of(timezone: str, instant: datetime) -> date:
    """Return the date of the zone at an instant. Raises CronError for an unknown zone."""
    return instant.astimezone(zones.named(timezone)).date()


def _seconds(instant: datetime) -> int:
    return (instant - _EPOCH) // _SECOND


def _instant(seconds: int) -> datetime:
    return _EPOCH + seconds * _SECOND


def _naive(instant: datetime) -> datetime:
    return instant.replace(tzinfo=None)

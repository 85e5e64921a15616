"""The days on which a schedule fires under a calendar.

None of these sets has a day after the last one that the calendar knows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from cronledger.rules.calendars import Calendar

OnExcluded = Literal["skip", "next", "previous"]


class DaySet(Protocol):
    """A set of days."""

    def on_or_after(self, day: int) -> int | None:
        """Return the first day of the set >= `day`, or None if there is none for 50 years."""

    def count(self, low: int, high: int) -> int:
        """Return the number of days of the set in [low, high)."""

    def shortest(self) -> int:
        """Return the shortest distance between two days of the set, in days."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownDays:
    """The named days that the calendar knows, excluded or not."""

    named: DaySet
    calendar: Calendar

    def on_or_after(self, day: int) -> int | None:
        return _known(self.named.on_or_after(day), self.calendar)

    def count(self, low: int, high: int) -> int:
        return self.named.count(low, min(high, self.calendar.last_day + 1))

    def shortest(self) -> int:
        return self.named.shortest()


@dataclass(frozen=True, slots=True, eq=False)
class IncludedDays:
    """The named days that the calendar knows and does not exclude."""

    named: DaySet
    calendar: Calendar

    def on_or_after(self, day: int) -> int | None:
        while (found := self.named.on_or_after(day)) is not None:
            day = self.calendar.included_from(found)
            if day == found:
                break
        return _known(found, self.calendar)

    def count(self, low: int, high: int) -> int:
        high = min(high, self.calendar.last_day + 1)
        excluded = sum(
            self.named.count(max(start, low), min(end, high))
            for start, end in self.calendar.runs(low, high)
        )
        return self.named.count(low, high) - excluded

    def shortest(self) -> int:
        return self.named.shortest()


@dataclass(frozen=True, slots=True, eq=False)
class MovedDays:
    """The named days, of which each excluded one is moved to the included day next to its run.

    After a move, several named days may be one.
    """

    named: DaySet
    calendar: Calendar
    to: OnExcluded

    def on_or_after(self, day: int) -> int | None:
        first = self.calendar.included_from(day)
        if self.to == "next":
            # What the run directly before it names is moved to it.
            found = self.named.on_or_after(self.calendar.included_until(first - 1) + 1)
            move = self.calendar.included_from
        else:
            found = self.named.on_or_after(first)
            move = self.calendar.included_until
        return None if found is None else _known(move(found), self.calendar)

    def count(self, low: int, high: int) -> int:
        high = min(high, self.calendar.last_day + 1)
        moved = 0
        for start, end in self.calendar.runs(low, high + 1):
            target = end if self.to == "next" else start - 1
            moved += (
                low <= target < high
                and self.named.count(start, end) > 0
                and self.named.count(target, target + 1) == 0
            )
        return IncludedDays(self.named, self.calendar).count(low, high) + moved

    def origins(self, day: int) -> Iterator[int]:
        """Yield the excluded named days that are moved to `day`; none if it is itself named."""
        if self.named.count(day, day + 1):
            return
        if self.to == "next":
            first, end = self.calendar.included_until(day - 1) + 1, day
        else:
            first, end = day + 1, self.calendar.included_from(day + 1)
        while (found := self.named.on_or_after(first)) is not None and found < end:
            yield found
            first = found + 1

    def shortest(self) -> int:
        shortest = self.named.shortest()
        before = self.on_or_after(self.calendar.first_day - shortest)
        while before is not None and shortest > 1:
            day = self.on_or_after(before + 1)
            if day is None:
                break
            shortest, before = min(shortest, day - before), day
        return shortest


@dataclass(frozen=True, slots=True, eq=False)
class UnknownDays:
    """The named days from `first` on, of which the calendar does not know what becomes of them."""

    named: DaySet
    first: int

    def on_or_after(self, day: int) -> int | None:
        return self.named.on_or_after(max(day, self.first))

    def count(self, low: int, high: int) -> int:
        return self.named.count(max(low, self.first), high)

    def shortest(self) -> int:
        return self.named.shortest()


def first_unknown(calendar: Calendar, on_excluded: OnExcluded) -> int:
    """Return the first day of which the calendar does not know whether, or when, it fires."""
    last = calendar.last_day
    return 1 + (calendar.included_until(last) if on_excluded == "next" else last)


def _known(day: int | None, calendar: Calendar) -> int | None:
    return day if day is not None and day <= calendar.last_day else None

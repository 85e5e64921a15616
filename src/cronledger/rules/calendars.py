"""Calendars: the dates on which a job does not fire, written out with the name of each day.

A *day* is an int, days since 1970-01-01. Consecutive excluded days are a *run*.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple, Self

_FIRST_DAY = date(1970, 1, 1).toordinal()


class CalendarKey(NamedTuple):
    """The identity of a revision of a calendar, in one ledger."""

    name: str
    revision: int


class ExcludedDate(NamedTuple):
    """A date that a calendar excludes, with the name of the day."""

    calendar: str
    date: date
    name: str


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Calendar:
    """One revision of a calendar: every excluded date from `first` to `through`, with its name.

    Dates before `first` are included. After `through` nothing is known. `revision` is 0 if no
    ledger has the calendar. `excluded` must not be changed: the runs are computed once.
    """

    name: str
    revision: int
    first: date
    through: date
    excluded: Mapping[date, str] = field(repr=False)
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _ends: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts: list[int] = []
        ends: list[int] = []
        for day in sorted(map(day_of, self.excluded)):
            if ends and ends[-1] == day:
                ends[-1] = day + 1
            else:
                starts.append(day)
                ends.append(day + 1)
        object.__setattr__(self, "_starts", tuple(starts))
        object.__setattr__(self, "_ends", tuple(ends))

    def __hash__(self) -> int:
        return hash((self.name, self.revision, self.through))

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Return a row of `calendar_revisions`."""
        excluded = {date.fromisoformat(day): name for day, name in row["excluded"].items()}
        return cls(row["calendar_name"], row["revision"], row["first"], row["through"], excluded)

    @property
    def key(self) -> CalendarKey:
        return CalendarKey(self.name, self.revision)

    @property
    def first_day(self) -> int:
        return day_of(self.first)

    @property
    def last_day(self) -> int:
        return day_of(self.through)

    def excluded_day(self, day: date) -> str | None:
        """Return the name of an excluded date; None: the date is included."""
        return self.excluded.get(day)

    def excluded_date(self, day: int) -> ExcludedDate:
        """Return an excluded day. Raises KeyError if it is included."""
        found = date_of(day)
        return ExcludedDate(self.name, found, self.excluded[found])

    def included_from(self, day: int) -> int:
        """Return the first included day >= `day`."""
        return day if (at := self._run(day)) is None else self._ends[at]

    def included_until(self, day: int) -> int:
        """Return the last included day <= `day`."""
        return day if (at := self._run(day)) is None else self._starts[at] - 1

    def runs(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield the runs [start, end) that have days in [low, high) or end at `low`, in order."""
        at = bisect_left(self._ends, low)
        while at < len(self._starts) and self._starts[at] < high:
            yield self._starts[at], self._ends[at]
            at += 1

    def _run(self, day: int) -> int | None:
        at = bisect_right(self._starts, day) - 1
        return at if at >= 0 and day < self._ends[at] else None


Calendars = Mapping[CalendarKey, Calendar]
"""Revisions of calendars by their keys."""


def day_of(day: date) -> int:
    """Return a date as a number of days since 1970-01-01."""
    return day.toordinal() - _FIRST_DAY


def date_of(day: int) -> date:
    """Return the date of a number of days since 1970-01-01."""
    return date.fromordinal(day + _FIRST_DAY)


def by_key(rows: Iterable[Mapping[str, Any]]) -> dict[CalendarKey, Calendar]:
    """Return these rows of `calendar_revisions`."""
    return {calendar.key: calendar for calendar in map(Calendar.from_row, rows)}


def named_in(rows: Iterable[Mapping[str, Any]]) -> set[CalendarKey]:
    """Return the revisions of calendars that these rows of jobs, or of their history, name."""
    return {
        CalendarKey(row["calendar"], row["calendar_revision"])
        for row in rows
        if row["calendar"] is not None
    }

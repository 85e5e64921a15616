"""The dates of calendars, read and applied independently of the planner."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, eq=False)
class Dates:
    """One revision of a calendar. `excluded`: the excluded dates with the names of the days."""

    name: str
    through: date
    excluded: Mapping[date, str]

    def fires_on(self, day: date, names: Callable[[date], bool], on_excluded: str) -> bool:
        """Return whether a date has firings, for a schedule that `names` dates.

        With `skip` that is also an excluded date, whose firings are skipped.
        """
        if day > self.through:
            return False
        if on_excluded == "skip":
            return names(day)
        if day in self.excluded:
            return False
        if names(day):
            return True
        back = -_DAY if on_excluded == "next" else _DAY
        other = day + back
        while other in self.excluded:
            if names(other):
                return True
            other += back
        return False


Calendars = Mapping[tuple[str, int], Dates]
"""The calendars by name and revision."""


def read_dates(rows: Iterable[Mapping[str, Any]]) -> Calendars:
    """Return these rows of `calendar_revisions`."""
    return {
        (row["calendar_name"], row["revision"]): Dates(
            row["calendar_name"],
            row["through"],
            {date.fromisoformat(day): name for day, name in row["excluded"].items()},
        )
        for row in rows
    }

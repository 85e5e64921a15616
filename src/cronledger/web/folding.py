"""Fold equal successes of a list of executions and skips into one line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any

from cronledger.ledger.reports import Row

LEAST = 3
"""Fewer successes stay rows of their own."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the list: a row, or equal successes, the newest first."""

    rows: Sequence[Row]

    @property
    def row(self) -> Row:
        """The newest row."""
        return self.rows[0]

    @property
    def is_folded(self) -> bool:
        """Whether the line has several rows."""
        return len(self.rows) > 1

    @property
    def duration(self) -> Any:
        """The duration, of several rows the median."""
        known = [row["duration"] for row in self.rows if row["duration"] is not None]
        return median(known) if known else None


def folded(rows: Sequence[Row]) -> list[Line]:
    """Return the lines of a list. Successes of several jobs may alternate between two other rows.

    A line stands where its newest row stood.
    """
    return [
        line
        for is_success, stretch in groupby(rows, lambda row: row["outcome"] == "SUCCESS")
        for line in (_lines([*stretch]) if is_success else (Line([row]) for row in stretch))
    ]


def _lines(successes: Sequence[Row]) -> Iterator[Line]:
    equal: dict[tuple[object, ...], list[Row]] = {}
    for row in successes:
        equal.setdefault(_key(row), []).append(row)
    for row in successes:
        same = equal[_key(row)]
        if len(same) < LEAST:
            yield Line([row])
        elif row is same[0]:
            yield Line(same)


def _key(row: Row) -> tuple[object, ...]:
    names = ("job_name", "scope_kind", "scope_id", "trigger", "attempt")
    return tuple(row[name] for name in names)

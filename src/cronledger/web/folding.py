"""Fold equal successes of a list of executions and skips into one line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any

from cronledger.explain import quotes
from cronledger.ledger.reports import Row
from cronledger.web.prose import Pieces, pieces

LEAST = 3
"""Fewer successes stay rows of their own."""
EQUAL = (
    ("job_name", "scope_kind", "scope_id", "trigger", "attempt"),
    ("job_name", "plan_time", "trigger", "attempt"),
)
"""What the successes of a line have in common: the scope, or else the plan_time."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the list: a row, or equal successes, the newest first."""

    rows: Sequence[Row]

    @property
    def row(self) -> Row:
        """The newest row."""
        return self.rows[0]

    @property
    def detail(self) -> Pieces:
        """The first line of the detail of the newest row."""
        return pieces((self.row["detail"] or "").partition("\n")[0], [quotes.of_ledger(self.row)])

    @property
    def is_folded(self) -> bool:
        """Whether the line has several rows."""
        return len(self.rows) > 1

    @property
    def scopes(self) -> int:
        """The number of scopes."""
        return len({(row["scope_kind"], row["scope_id"]) for row in self.rows})

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
    place = {id(row): index for index, row in enumerate(successes)}
    folds, rest = list[list[Row]](), list(successes)
    for names in EQUAL:
        equal: dict[tuple[object, ...], list[Row]] = {}
        for row in rest:
            equal.setdefault(tuple(row[name] for name in names), []).append(row)
        folds += [rows for rows in equal.values() if len(rows) >= LEAST]
        few = [row for rows in equal.values() if len(rows) < LEAST for row in rows]
        rest = sorted(few, key=lambda row: place[id(row)])
    for rows in sorted([*folds, *([row] for row in rest)], key=lambda rows: place[id(rows[0])]):
        yield Line(rows)

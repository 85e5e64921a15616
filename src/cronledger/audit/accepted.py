"""Find the acceptance of a violation."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cronledger.ledger.audits import Row
from cronledger.rules.model import ScopeKey

ACCEPTABLE = (
    "missing", "extra", "wrong_revision", "wrong_due_at", "miscounted", "untrue_skip", "doubled",
    "early", "overlapping", "over_limit", "attempts", "unknown_end", "window",
)  # fmt: skip
"""Kinds of past violations. The others disappear when their cause is corrected."""

_Place = tuple[str, ScopeKey, int | None]  # kind, scope, execution


@dataclass(frozen=True, slots=True)
class Acceptance:
    """One acceptance that was not withdrawn."""

    id: int
    reason: str
    accepted_by: str
    accepted_at: datetime


class Acceptances:
    """Acceptances by the violation that they accept, from `rows` of accepted_violations."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._single: dict[tuple[_Place, datetime], Acceptance] = {}
        self._ranges: dict[_Place, list[tuple[datetime, datetime, Acceptance]]] = {}
        for row in rows:
            key = ScopeKey(row["job_name"], row["scope_kind"], row["scope_id"])
            place = (row["kind"], key, row["execution_id"])
            first, last = row["plan_time"], row["through_plan_time"]
            made = Acceptance(row["id"], row["reason"], row["accepted_by"], row["accepted_at"])
            if first == last:
                self._single[place, first] = made
            else:
                self._ranges.setdefault(place, []).append((first, last, made))

    def find(
        self, kind: str, key: ScopeKey, plan_time: datetime, execution_id: int | None
    ) -> Acceptance | None:
        """Return the acceptance of this violation, or None if it is not accepted."""
        place = (kind, key, execution_id)
        found = self._single.get((place, plan_time))
        if found is not None:
            return found
        ranges = self._ranges.get(place, ())
        return next((made for first, last, made in ranges if first <= plan_time <= last), None)

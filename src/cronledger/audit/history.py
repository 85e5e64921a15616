"""The past of a job as an audit sees it: which revision owns a plan_time, which state held when.

The half-open rules are those of the ledger: a revision owns the plan_times in (its effective_from,
the next one's], and its state holds for the due_at in the same interval; a pause with
`paused_until` ends there by itself. All from `job_history`, with no code of the planner.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from cronledger.audit.walk import Definition, due_at, walk
from cronledger.ledger.audits import Stand
from cronledger.rules.model import GLOBAL, ScopeKey


@dataclass(frozen=True, slots=True)
class Edit:
    """One revision, in force after `start`. `definition` None: its schedule cannot be read.

    `names`: numbers of revisions that rows of its plan_times may bear: its own, and that of a pause
    that ended by itself, because rows were written before the end of the pause was.
    """

    number: int
    start: datetime
    state: str
    paused_until: datetime | None
    raw: Mapping[str, Any]
    definition: Definition | None
    names: frozenset[int]

    @property
    def grace(self) -> timedelta | None:
        """None: it cannot be read."""
        # One reader of intervals for all of them: jitter's.
        definition = _readable({**self.raw, "jitter": self.raw["grace"]})
        return None if definition is None else definition.jitter


class Window(NamedTuple):
    """Which plan_times are judged, (after, through], and the database's time of the snapshot.

    `end`: the last plan_time that is asked for; what lies between it and `through` is not planned.
    """

    after: datetime
    through: datetime
    now: datetime
    end: datetime


class Expected(NamedTuple):
    """A plan_time that has to be accounted for, under the edit that owns it."""

    plan_time: datetime
    due_at: datetime
    edit: Edit


class History:
    """All edits of one job, the oldest first."""

    def __init__(self, revisions: Sequence[Mapping[str, Any]]) -> None:
        self.edits: list[Edit] = []
        start: datetime | None = None
        for row in revisions:
            start = row["effective_from"] if start is None else max(start, row["effective_from"])
            self.edits.append(_edit(row, start, self.edits[-1] if self.edits else None))
        self._starts = [edit.start for edit in self.edits]

    def at(self, instant: datetime) -> Edit:
        """Return the edit that owns, or whose state holds for, `instant`."""
        return self.edits[max(0, bisect_left(self._starts, instant) - 1)]

    def planned(self, stand: Stand) -> datetime:
        """Return how far the cursor speaks for it: to the first edit that it has not planned."""
        later = (e.start for e in self.edits if e.number > stand.planned_revision)
        return min([stand.planned_through, *later])

    def expected(self, key: ScopeKey, after: datetime, through: datetime) -> Iterator[Expected]:
        """Yield every plan_time in (after, through] that the schedule had, ascending."""
        ends = [*self._starts[1:], through]
        for edit, end in zip(self.edits, ends, strict=True):
            first = after if edit is self.edits[0] else max(after, edit.start)
            if edit.definition is None or first >= min(end, through):
                continue
            definition = edit.definition
            plain = not definition.jitter and not definition.schedule_delay
            for plan_time in walk(definition, *key, first, min(end, through)):
                due = plan_time if plain else due_at(definition, *key, plan_time)
                yield Expected(plan_time, due, edit)

    def paused(self, due: datetime) -> bool:
        """Whether a pause was in force for what was due then."""
        edit = self.at(due)
        until = edit.paused_until
        return edit.state == "paused" and (until is None or due <= until)

    def may_be_retired(self, stand: Stand, due: datetime) -> bool:
        """Whether job or scope was retired then, as far as the ledger still knows.

        Which scopes a provider answered is written down nowhere once they have returned.
        """
        edit, kind = self.at(due), stand.key.scope_kind
        if edit.state == "retired":
            return True
        if stand.retired_at is not None and stand.retired_at < due:
            return stand.returned_at is None or due <= stand.returned_at
        scopes = edit.raw["scopes"]
        if kind != edit.raw["scope_kind"]:
            return True
        return kind != GLOBAL and (scopes is None or stand.key.scope_id not in scopes)

    def was_retired_between(self, stand: Stand, due: datetime, until: datetime) -> bool:
        """Whether job or scope may have been retired at any time in (due, until]."""
        marks = [due, until, *(start for start in self._starts if due <= start <= until)]
        tick = timedelta(microseconds=1)
        return any(
            self.may_be_retired(stand, at) for mark in marks for at in (mark, mark + tick)
        ) or (stand.retired_at is not None and stand.retired_at <= until)


def _edit(row: Mapping[str, Any], start: datetime, before: Edit | None) -> Edit:
    raw = row["definition"]
    names = frozenset({row["revision"]})
    if (
        before is not None
        and before.state == "paused"
        and before.paused_until == start
        and before.raw == raw
    ):
        names |= before.names
    return Edit(
        row["revision"], start, row["state"], row["paused_until"], raw, _readable(raw), names
    )


def _readable(raw: Mapping[str, Any]) -> Definition | None:
    """A schedule that cannot be read fires nothing."""
    try:
        definition = Definition.from_revision(raw)
        moment = datetime.fromisoformat("2000-01-01T00:00:00+00:00")
        walk(definition, "", "", "", moment, moment)
    except ValueError:
        return None
    return definition

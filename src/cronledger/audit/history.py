"""The history of a job: the revision that owns a plan_time, and the state at an instant.

The intervals are those of the ledger: a revision owns the plan_times in (its effective_from, that
of the next one]. Its state applies to the due_at in the same interval. A pause with `paused_until`
ends at that time. This module only reads `job_history`, and shares no code with the planner.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from cronledger.audit.dates import Calendars
from cronledger.audit.walk import Definition, due_at, excluded_day, walk
from cronledger.ledger.audits import ScheduleState
from cronledger.rules.model import GLOBAL, ScopeKey

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Edit:
    """One revision, in force after `start`. `definition` is None if its schedule is invalid.

    `revisions`: the revisions that rows of its plan_times may have. These are its own, and that of
    a pause that ended by itself, because rows are written before the end of the pause is recorded.
    `grace`: None if it is invalid.
    """

    number: int
    start: datetime
    state: str
    paused_until: datetime | None
    raw: Mapping[str, Any]
    definition: Definition | None
    revisions: frozenset[int]
    grace: timedelta | None

    @property
    def never_fires(self) -> bool:
        """Whether another scheduler runs all plan_times of this revision, and none is the ledger's.

        It has no handler.
        """
        return self.raw.get("handler") == "observed"

    def own_part(self, after: datetime, through: datetime) -> tuple[datetime, datetime]:
        """Return the part of (after, through] whose plan_times replicas run. It may be empty."""
        if self.never_fires:
            return through, through
        if self.raw.get("observed"):
            adopted, returned = (self.raw.get(name) for name in ("adopted_at", "returned_at"))
            if adopted is None:
                return through, through
            after = max(after, datetime.fromisoformat(adopted) - _TICK)
            if returned is not None:
                through = min(through, datetime.fromisoformat(returned) - _TICK)
        return after, through

    def is_observed(self, plan_time: datetime) -> bool:
        """Return whether another scheduler runs this plan_time of the revision."""
        after, through = self.own_part(plan_time - _TICK, plan_time)
        return after >= through

    def interval(self, name: str) -> timedelta | None:
        """Return a duration of this revision, or None if it has none, or is invalid."""
        return _interval(self.raw, name)


class Window(NamedTuple):
    """The plan_times to compare, (after, through], and the database's time of the snapshot.

    `end`: the last plan_time that was requested. Those between `through` and `end` are not planned.
    """

    after: datetime
    through: datetime
    now: datetime
    end: datetime


class Decision(NamedTuple):
    """A planned skip: an operator decided that the plan_times from `first` to `last` do not run.

    `scope`: its kind and id; None: all scopes of the job.
    """

    scope: tuple[str, str] | None
    first: datetime
    last: datetime
    reason: str
    decided_at: datetime


class Expected(NamedTuple):
    """A plan_time that must be accounted for, and the edit that owns it.

    `excluded`: the name of its day, if it must be skipped because of the calendar. `decisions`: the
    planned skips that contain it. `noticed_after`: if it is a boot, how long after it the host
    first checked in.
    """

    plan_time: datetime
    due_at: datetime
    edit: Edit
    excluded: str | None = None
    decisions: Sequence[Decision] = ()
    noticed_after: timedelta | None = None

    @property
    def noticed_late(self) -> bool:
        """Whether it is a boot after which the host did not check in within grace."""
        grace = self.edit.grace
        return self.noticed_after is not None and grace is not None and self.noticed_after > grace

    @property
    def is_observed(self) -> bool:
        """Whether another scheduler runs it."""
        return self.edit.is_observed(self.plan_time)

    @property
    def never_runs(self) -> bool:
        """Whether it must be a skip, whatever the policies of its job are."""
        return self.excluded is not None or bool(self.decisions)


class Owned(NamedTuple):
    """The plan_times in (after, through], which an edit with a valid definition owns."""

    edit: Edit
    definition: Definition
    after: datetime
    through: datetime


class History:
    """All edits of one job, the oldest first. `calendars`: those that they name.

    `planned_skips`: the rows of the job that `Audits.planned_skips` returns.
    """

    def __init__(
        self,
        revisions: Sequence[Mapping[str, Any]],
        calendars: Calendars,
        planned_skips: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.edits: list[Edit] = []
        self._decisions = sorted(map(_decision, planned_skips), key=lambda one: one.first)
        start: datetime | None = None
        for row in revisions:
            start = row["effective_from"] if start is None else max(start, row["effective_from"])
            self.edits.append(_edit(row, start, self.edits[-1] if self.edits else None, calendars))
        self._starts = [edit.start for edit in self.edits]

    def at(self, instant: datetime) -> Edit:
        """Return the edit that owns `instant`, and whose state applies to it."""
        return self.edits[max(0, bisect_left(self._starts, instant) - 1)]

    def planned(self, state: ScheduleState) -> datetime:
        """Return how far planning has come: to the cursor, or to the first unplanned edit."""
        later = (e.start for e in self.edits if e.number > state.planned_revision)
        return min([state.planned_through, *later])

    def expected(
        self,
        key: ScopeKey,
        after: datetime,
        through: datetime,
        state: ScheduleState | None = None,
        *,
        own: bool = False,
    ) -> Iterator[Expected]:
        """Yield every plan_time of the schedule in (after, through], ascending.

        `state`: that of the scope, without which no boot of its host is known. `own`: only those
        that replicas run, without enumerating the others.
        """
        decided = self._decided(key)
        boots = boots_of(state)
        for owned in self.owned(after, through, boots, own=own):
            definition = owned.definition
            noticed = boots if definition.at_boots else {}
            plain = not definition.jitter and not definition.schedule_delay
            for plan_time in walk(definition, key, owned.after, owned.through):
                due = plan_time if plain else due_at(definition, key, plan_time)
                excluded = excluded_day(definition, key, plan_time) if definition.dates else None
                decisions = decided(plan_time) if self._decisions else ()
                after_boot = noticed.get(plan_time)
                yield Expected(plan_time, due, owned.edit, excluded, decisions, after_boot)

    def _decided(self, key: ScopeKey) -> Callable[[datetime], Sequence[Decision]]:
        """Return a function from plan_times of a scope, ascending, to the decisions about each."""
        scopes = (None, (key.scope_kind, key.scope_id))
        coming = deque(one for one in self._decisions if one.scope in scopes)
        begun: list[Decision] = []

        def decisions(plan_time: datetime) -> Sequence[Decision]:
            while coming and coming[0].first <= plan_time:
                begun.append(coming.popleft())
            begun[:] = [one for one in begun if one.last >= plan_time]
            return tuple(begun)

        return decisions

    def owned(
        self,
        after: datetime,
        through: datetime,
        boots: Iterable[datetime] = (),
        *,
        own: bool = False,
    ) -> Iterator[Owned]:
        """Yield the parts of (after, through] that valid edits own, ascending.

        `boots`: the plan_times of definitions with the schedule `@reboot`. `own`: only the parts
        whose plan_times replicas run.
        """
        boots = tuple(boots)
        ends = [*self._starts[1:], through]
        for edit, end in zip(self.edits, ends, strict=True):
            first = after if edit is self.edits[0] else max(after, edit.start)
            last = min(end, through)
            if own:
                first, last = edit.own_part(first, last)
            if edit.definition is not None and first < last:
                definition = edit.definition
                if definition.at_boots:
                    definition = replace(definition, boots=boots)
                yield Owned(edit, definition, first, last)

    def paused(self, due: datetime) -> bool:
        """Return whether a pause was in force at `due`."""
        edit = self.at(due)
        until = edit.paused_until
        return edit.state == "paused" and (until is None or due <= until)

    def retired(self, state: ScheduleState, due: datetime) -> bool:
        """Return whether the job or scope was retired at `due`.

        The scopes that a job declares are in its history, too.
        """
        edit, kind = self.at(due), state.key.scope_kind
        if edit.state == "retired" or kind != edit.raw["scope_kind"]:
            return True
        scopes = edit.raw.get("scopes")
        if kind != GLOBAL and scopes is not None and state.key.scope_id not in scopes:
            return True
        return self.scope_retired(state, due)

    @staticmethod
    def scope_retired(state: ScheduleState, due: datetime) -> bool:
        """Return whether the scope was retired at `due`, whatever its job was."""
        return any(
            retired < due and (returned is None or due <= returned)
            for retired, returned in zip(state.retirements, state.returns, strict=True)
        )

    def absent(self, state: ScheduleState, expected: Expected, now: datetime) -> bool:
        """Return whether the host of the scope did not check in from due_at to the end of grace.

        The grace is that of the edit in force at due_at. For a boot, it may also be that from the
        boot to the end of the grace of its own edit.
        """
        if expected.noticed_late:
            return True
        due = expected.due_at
        grace = self.at(due).grace
        if grace is None or not state.absent_from or state.absent_until is None:
            return False
        gaps = zip(state.absent_from, state.absent_until, strict=True)
        return any(start < due and due + grace < (end or now) for start, end in gaps)

    def was_retired_between(self, state: ScheduleState, due: datetime, until: datetime) -> bool:
        """Return whether the job or scope was retired at some time in (due, until]."""
        marks = [due, until, *(start for start in self._starts if due <= start <= until)]
        return any(self.retired(state, at) for mark in marks for at in (mark, mark + _TICK)) or any(
            due <= retired <= until for retired in state.retirements
        )

    def started_nothing_between(self, due: datetime, until: datetime) -> bool:
        """Return whether the job was retired, or had no handler, at some time in [due, until]."""
        ends = [*self._starts[1:], None]
        return any(
            edit.start <= until and (end is None or end >= due)
            for edit, end in zip(self.edits, ends, strict=True)
            if edit.never_fires or edit.state == "retired"
        )


def boots_of(state: ScheduleState | None) -> dict[datetime, timedelta]:
    """Return the plan_times of `@reboot`, and how long after each boot the host checked in."""
    if state is None or state.boots is None or state.noticed_after is None:
        return {}
    return dict(zip(state.boots, state.noticed_after, strict=True))


def _decision(row: Mapping[str, Any]) -> Decision:
    scope = None if row["scope_id"] is None else (row["scope_kind"], row["scope_id"])
    return Decision(
        scope, row["from_plan_time"], row["covered_through"], row["reason"], row["created_at"]
    )


def _edit(
    row: Mapping[str, Any], start: datetime, before: Edit | None, calendars: Calendars
) -> Edit:
    raw = row["definition"]
    revisions = frozenset({row["revision"]})
    if (
        before is not None
        and before.state == "paused"
        and before.paused_until == start
        and before.raw == raw
    ):
        revisions |= before.revisions
    return Edit(
        row["revision"],
        start,
        row["state"],
        row["paused_until"],
        raw,
        _readable(raw, calendars),
        revisions,
        _interval(raw, "grace"),
    )


def _interval(raw: Mapping[str, Any], name: str) -> timedelta | None:
    if raw.get(name) is None:
        return None
    # A definition reads intervals, but has no other, so that of jitter is used.
    definition = _readable({**raw, "jitter": raw[name], "calendar": None}, {})
    return None if definition is None else definition.jitter


def _readable(raw: Mapping[str, Any], calendars: Calendars) -> Definition | None:
    """Return the definition, or None if it is invalid, because then it fires nothing."""
    try:
        definition = Definition.from_revision(raw, calendars)
        moment = datetime.fromisoformat("2000-01-01T00:00:00+00:00")
        walk(definition, ScopeKey("", "", ""), moment, moment)
    except ValueError:
        return None
    return definition

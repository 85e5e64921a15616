"""The accounted day: what became of every plan_time of one (job, scope) on a date of its zone.

The plan_times come from the revisions of the job, computed as `verify` computes them, and never
from the rows that account for them. So a plan_time without an execution and without a skip is found
and counted as unexplained. Only the executions that the schedule fired account for plan_times:
those that people and programs requested (manual, backfill, enqueue) are counted beside them. A
backfilled plan_time keeps the skip that it had, because its skip and its execution are both true.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cronledger.audit.dates import Calendars
from cronledger.audit.history import History
from cronledger.audit.walk import due_at
from cronledger.explain.day.local_day import LocalDay
from cronledger.explain.day.plan_times import PlanTimes
from cronledger.explain.day.states import SKIPPED, Counts, State, state_of
from cronledger.explain.firings import obstacle
from cronledger.ledger.audits import ScheduleState
from cronledger.rules.model import ScopeKey

Row = Mapping[str, Any]

MARKS = 300
"""A day with more plan_times than this is shown by its density, and not by single marks."""

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Edit:
    """A revision that begins on the day. `kind`: created, edited, paused, resumed or retired."""

    at: datetime
    revision: int
    kind: str
    requested_by: str | None
    reason: str | None
    paused_until: datetime | None


@dataclass(frozen=True, slots=True)
class RunnerGap:
    """A time in which no runner of the job's queue checked in."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Skip:
    """A range of skipped plan_times. Its links: `blocked_by` of an overlap, `pause`, `gap`.

    `detail`: the name of the day that the calendar excludes, or the reason of an operator.
    `calendar` and `pause`: the calendar and the edit that were in force at the last of them. `gap`:
    the time without runners in which a missed one was due, as far as it is known.
    """

    first: datetime
    through: datetime
    count: int
    reason: State
    recorded_at: datetime
    detail: str | None
    blocked_by: int | None
    calendar: str | None
    pause: Edit | None
    gap: RunnerGap | None


@dataclass(frozen=True, slots=True)
class Mark:
    """One plan_time, or one execution beside the schedule, with the row that accounts for it.

    `execution`: the row of `list_day_executions.sql`. `obstacle`: what will skip it. `pause`: the
    edit that holds it.
    """

    plan_time: datetime
    state: State
    execution: Row | None = None
    skip: Skip | None = None
    obstacle: str | None = None
    pause: Edit | None = None


@dataclass(frozen=True, slots=True)
class AccountedDay:
    """The day of one scope.

    `counts`: the plan_times by state, of which each has one. `minutes`: the same by minute since
    the start of the day. `marks`: the plan_times one by one; None: there are more than MARKS.
    `beside`, `beside_minutes`, `beside_marks`: the executions that were requested, by trigger.
    `complete_after`: the ledger accounts only for plan_times after this instant, because the scope
    did not exist before (`began`), or because older rows were pruned. `verified_at`: when `verify`
    last found this day, or that part of it which was over, without violations; None: never.
    """

    key: ScopeKey
    local: LocalDay
    now: datetime
    counts: Counts
    minutes: Mapping[int, Counts]
    marks: Sequence[Mark] | None
    beside: Mapping[str, Counts]
    beside_minutes: Mapping[int, Counts]
    beside_marks: Sequence[Mark] | None
    edits: Sequence[Edit]
    runner_gaps: Sequence[RunnerGap]
    complete_after: datetime | None
    began: bool
    verified_at: datetime | None = None


@dataclass
class Accounting:
    """The steps from the rows of a day to its AccountedDay. `extent`, …: rows of DayRows."""

    key: ScopeKey
    local: LocalDay
    extent: Row
    revisions: Sequence[Row]
    dates: Calendars
    counted: Sequence[Row]
    skipped: Sequence[Row]
    runner_gaps: Sequence[RunnerGap]
    planned_skips: Sequence[Row] = ()
    pauses: Sequence[Row] = ()
    counts: Counter[State] = field(default_factory=Counter)
    minutes: dict[int, Counter[State]] = field(default_factory=lambda: defaultdict(Counter))
    beside: dict[str, Counter[State]] = field(default_factory=lambda: defaultdict(Counter))
    beside_minutes: dict[int, Counter[State]] = field(default_factory=lambda: defaultdict(Counter))

    def __post_init__(self) -> None:
        extent = self.extent
        self._history = History(self.revisions, self.dates)
        self._state = ScheduleState(
            self.key,
            **{name: extent[name] for name in ScheduleState._fields if name in extent},
        )
        self._rows = {row["revision"]: row for row in self.revisions}
        self.edits = list(_edits(self.revisions, self.local))
        before = self.local.start - _TICK
        pruned, created = extent["pruned_through"] or before, extent["created_at"]
        self._after = max(before, pruned, created)
        self._began = self._after == created
        self._authority = before
        if self.revisions:
            self._authority = min(extent["planned_through"], self._history.planned(self._state))
        self._skips = [self._skip(row) for row in self.skipped]
        self._states: dict[int, State | None] = {}

    def add_up(self) -> None:
        """Compute the plan_times, and count what became of each of them.

        Each plan_time has one state: that of its execution, or else that of its skip, or else that
        of a plan_time which planning has not reached.
        """
        plan_times = PlanTimes(
            self._history, self._state, self.local, after=self._after, now=self.extent["now"],
            pauses=self.pauses,
        )  # fmt: skip
        self._states = plan_times.states(self._authority)
        self._apply_skips()
        self._apply_planned_skips()
        self._apply_calendar(plan_times)
        self._apply_executions()
        by_minute = Counter((second // 60, state) for second, state in self._states.items())
        for (minute, state), count in by_minute.items():
            if state is not None:
                self.counts[state] += count
                self.minutes[minute][state] += count

    @property
    def has_marks(self) -> bool:
        """Whether the plan_times are few enough to be shown one by one."""
        return sum(self.counts.values()) <= MARKS

    @property
    def has_beside_marks(self) -> bool:
        """Whether the executions beside the schedule are few enough to be shown one by one."""
        return sum(sum(one.values()) for one in self.beside.values()) <= MARKS

    def day(self, executions: Sequence[Row] | None, beside: Sequence[Row] | None) -> AccountedDay:
        """Return the day, with the executions of the schedule and those beside it, if few."""
        return AccountedDay(
            key=self.key,
            local=self.local,
            now=self.extent["now"],
            counts=self.counts,
            minutes=self.minutes,
            marks=None if executions is None else list(self._marks(executions)),
            beside=self.beside,
            beside_minutes=self.beside_minutes,
            beside_marks=None if beside is None else [_beside(row) for row in beside],
            edits=self.edits,
            runner_gaps=self.runner_gaps,
            complete_after=self._after if self._after >= self.local.start else None,
            began=self._began,
        )

    # --- plan_times ---------------------------------------------------------------------------

    def _apply_skips(self) -> None:
        """Give the unexplained plan_times in a range of skips its reason."""
        for skip in self._skips:
            self._change(skip.first, skip.through, State.UNEXPLAINED, skip.reason)

    def _apply_planned_skips(self) -> None:
        """Mark the plan_times to come that planned skips contain."""
        for row in self.planned_skips:
            first, last = row["from_plan_time"], row["covered_through"]
            self._change(first, last, State.FUTURE, State.TO_SKIP)

    def _apply_calendar(self, plan_times: PlanTimes) -> None:
        """Mark the plan_times to come that a calendar excludes."""
        if State.FUTURE in self._states.values():
            for second in plan_times.excluded():
                if self._states[second] is State.FUTURE:
                    self._states[second] = State.TO_SKIP

    def _change(self, first: datetime, through: datetime, before: State, after: State) -> None:
        """Give the plan_times in [first, through] that have a state another one."""
        seconds = list(self._states)
        start = bisect_left(seconds, self.local.second(max(first, self.local.start)))
        end = bisect_right(seconds, self.local.second(min(through, self.local.end)))
        for second in seconds[start:end]:
            if self._states[second] is before:
                self._states[second] = after

    def _apply_executions(self) -> None:
        """Give the executed plan_times the states of their executions. Count all others."""
        for row in self.counted:
            minute, scheduled = row["minute"], row["trigger"] == "schedule"
            state = state_of(row["status"], row["again"], row["late"], scheduled)
            if not scheduled:
                self.beside[row["trigger"]][state] += row["count"]
                self.beside_minutes[minute][state] += row["count"]
            elif row["seconds"] is None:  # the schedule names whole seconds only
                self.counts[State.EXTRA] += row["count"]
                self.minutes[minute][State.EXTRA] += row["count"]
            else:
                for second in row["seconds"]:
                    if second in self._states:
                        self._states[second] = state
                    elif self._would_be_planned(second):
                        self._states[second] = State.EXTRA

    def _would_be_planned(self, second: int) -> bool:
        """Return whether an execution of this second without a plan_time is wrong."""
        at, cursor = self.local.instant(second), self.extent["planned_through"]
        return at in self.local and self._after < at and (at <= self._authority or at > cursor)

    # --- rows ---------------------------------------------------------------------------------

    def _marks(self, executions: Sequence[Row]) -> Iterator[Mark]:
        rows = {row["plan_time"]: row for row in executions}
        starts = [skip.first for skip in self._skips]
        for second, state in sorted(self._states.items()):
            if state is None:
                continue
            at, skip = self.local.instant(second), None
            if state in SKIPPED:
                skip = self._skips[bisect_right(starts, at) - 1]
            obstacle = self._obstacle(at) if state is State.TO_SKIP else None
            pause = self._pause(at) if state is State.HELD else None
            yield Mark(at, state, rows.get(at), skip, obstacle, pause)

    def _obstacle(self, plan_time: datetime) -> str | None:
        definition = self._history.at(plan_time).definition
        if definition is None:
            return None
        return obstacle(definition, self.key, plan_time, self.planned_skips, self.pauses)

    def _skip(self, row: Row) -> Skip:
        reason = State(row["reason"])
        through = row["through_plan_time"]
        last = min(through, self.local.end)
        pause = self._pause(last) if reason is State.PAUSED else None
        gap = None
        if reason is State.MISSED:
            gaps = (one for one in self.runner_gaps if one.start <= through <= one.end)
            gap = next(gaps, None)
        return Skip(
            row["from_plan_time"], through, row["count"], reason, row["created_at"],
            row["detail"], row["blocked_by"], self._calendar(last), pause, gap,
        )  # fmt: skip

    def _calendar(self, plan_time: datetime) -> str | None:
        """Return the name of the calendar in force at a plan_time, if it is known."""
        definition = self._history.at(plan_time).definition if self.revisions else None
        return definition.dates.name if definition and definition.dates else None

    def _pause(self, plan_time: datetime) -> Edit | None:
        """Return the edit that paused the job at the due_at of a plan_time, if it is known."""
        if not self.revisions:
            return None
        definition = self._history.at(plan_time).definition
        if definition is None:
            return None
        found = self._history.at(due_at(definition, self.key, plan_time))
        if found.state != "paused":
            return None
        row = self._rows[found.number]
        # An edit of a paused job is a revision with the same pause, but with its own author.
        while (before := self._rows.get(row["revision"] - 1)) is not None and all(
            before[name] == row[name] for name in ("state", "reason", "paused_until")
        ):
            row = before
        return _edit(row, "paused")


def _beside(row: Row) -> Mark:
    state = state_of(row["status"], row["next_attempt_at"] is not None, False, False)
    return Mark(row["plan_time"], state, row)


def _edits(revisions: Sequence[Row], local: LocalDay) -> Iterator[Edit]:
    before: Row | None = None
    for row in revisions:
        if local.start <= row["effective_from"] and row["effective_from"] in local:
            yield _edit(row, _kind(before, row))
        before = row


def _kind(before: Row | None, row: Row) -> str:
    if before is None:
        return "created" if row["revision"] == 1 else "edited"
    if row["state"] == before["state"]:
        return "edited"
    return {"paused": "paused", "retired": "retired", "active": "resumed"}[row["state"]]


def _edit(row: Row, kind: str) -> Edit:
    return Edit(
        row["effective_from"], row["revision"], kind, row["requested_by"], row["reason"],
        row["paused_until"],
    )  # fmt: skip


def gaps_between(runners: Sequence[Row], start: datetime, end: datetime) -> list[RunnerGap]:
    """Return the parts of [start, end] in which none of these runners was alive.

    `runners`: rows of `list_day_runners.sql`, by started_at. A part of less than a minute is left
    out, because check-ins are up to 15 s apart.
    """
    found: list[RunnerGap] = []
    reached = start
    for row in [*runners, {"started_at": end, "alive_until": end}]:
        until = min(row["started_at"], end)
        if until - reached >= timedelta(minutes=1):
            found.append(RunnerGap(reached, until))
        reached = max(reached, row["alive_until"])
    return found

"""The accounted day: what became of every plan_time of one (job, scope) on a date of its zone.

The plan_times come from the revisions of the job, computed as `verify` computes them, and never
from the rows that account for them. So a plan_time without an execution and without a skip is found
and counted as unexplained. Only the executions that the schedule fired account for plan_times:
those that people and programs requested (manual, backfill, enqueue) are counted beside them. A
backfilled plan_time keeps the skip that it had, because its skip and its execution are both true.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cronledger.audit.history import History
from cronledger.audit.walk import due_at
from cronledger.explain.day import seconds
from cronledger.explain.day.local_day import LocalDay
from cronledger.explain.day.plan_times import PlanTimes
from cronledger.explain.day.seconds import MINUTE, Axis
from cronledger.explain.day.states import SKIPPED, Counts, State, state_of
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

    `pause`: the edit that was in force at the last of them. `gap`: the time without runners in
    which a missed one was due, as far as it is known.
    """

    first: datetime
    through: datetime
    count: int
    reason: State
    recorded_at: datetime
    blocked_by: int | None
    pause: Edit | None
    gap: RunnerGap | None


@dataclass(frozen=True, slots=True)
class Mark:
    """One plan_time, or one execution beside the schedule, with the row that accounts for it.

    `execution`: the row of `list_day_executions.sql`.
    """

    plan_time: datetime
    state: State
    execution: Row | None = None
    skip: Skip | None = None


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
    counted: Sequence[Row]
    skipped: Sequence[Row]
    runner_gaps: Sequence[RunnerGap]
    counts: Counter[State] = field(default_factory=Counter)
    minutes: dict[int, Counter[State]] = field(default_factory=lambda: defaultdict(Counter))
    beside: dict[str, Counter[State]] = field(default_factory=lambda: defaultdict(Counter))
    beside_minutes: dict[int, Counter[State]] = field(default_factory=lambda: defaultdict(Counter))

    def __post_init__(self) -> None:
        extent = self.extent
        self._history = History(self.revisions)
        self._state = ScheduleState(
            self.key,
            *(extent[name] for name in ScheduleState._fields if name != "key"),
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
        self._axis = Axis(self.local)
        self._plan_times = PlanTimes(
            self._history, self._state, self._axis,
            after=self._after, through=self.local.end - _TICK, now=extent["now"],
        )  # fmt: skip
        self._skips = [self._skip(row) for row in self.skipped]
        self._states = b""

    def add_up(self) -> None:
        """Compute the plan_times, and count what became of each of them.

        Each plan_time has one state: that of its execution, or else that of its skip, or else that
        of a plan_time which planning has not reached.
        """
        ran, own = self._executed(), self._axis.own()
        planned = seconds.kept(self._plan_times.planned(), own)
        states = seconds.kept(seconds.either(ran, self._not_executed(planned)), planned)
        extra = seconds.kept(seconds.without(ran, planned), seconds.kept(own, self._known()))
        extra = seconds.marked(extra, seconds.code(State.EXTRA))
        self._states = seconds.either(states, extra)
        for state, count in seconds.counted(self._states):
            self.counts[state] += count
        for first in range(0, len(self._states), MINUTE):
            for state, count in seconds.counted(self._states[first : first + MINUTE]):
                self.minutes[first // MINUTE][state] += count

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

    def _executed(self) -> bytes:
        """Return the state of each second in which one ran. Count the executions beside them."""
        ran = bytearray(self._axis.length)
        for row in self.counted:
            planned = row["trigger"] == "schedule"
            state = state_of(row["status"], row["again"], row["late"], planned)
            if planned:
                first, mask = row["minute"] * MINUTE, row["seconds"]
                there = slice(first, min(first + MINUTE, len(ran)))
                found = seconds.by_bits(mask, seconds.code(state), there.stop - first)
                ran[there] = seconds.either(found, ran[there])
                odd = row["count"] - mask.bit_count()
                if odd:  # the schedule names whole seconds only
                    self.counts[State.EXTRA] += odd
            else:
                self.beside[row["trigger"]][state] += row["count"]
                self.beside_minutes[row["minute"]][state] += row["count"]
        return bytes(ran)

    def _not_executed(self, planned: bytes) -> bytes:
        """Return the state of each plan_time that it has if no execution has it."""
        settled = self._axis.through(self._authority)
        unexplained = bytes([seconds.code(State.UNEXPLAINED)]) * settled
        unsettled = self._plan_times.unsettled(planned, self._authority)
        return seconds.either(self._skipped()[:settled], unexplained) + unsettled[settled:]

    def _skipped(self) -> bytes:
        skipped = bytearray(self._axis.length)
        for row in self.skipped:
            first = max(0, self._axis.place(row["from_plan_time"]))
            end = self._axis.through(row["through_plan_time"])
            seconds.fill(skipped, first, end, seconds.code(State(row["reason"])))
        return bytes(skipped)

    def _known(self) -> bytes:
        """Return 1 for each second in which an execution without a plan_time would be wrong."""
        known = bytearray(self._axis.length)
        through = self._axis.through
        after, cursor = through(self._after), through(self.extent["planned_through"])
        seconds.fill(known, after, through(self._authority), 1)
        seconds.fill(known, max(after, cursor), len(known), 1)
        return bytes(known)

    # --- rows ---------------------------------------------------------------------------------

    def _marks(self, executions: Sequence[Row]) -> Iterator[Mark]:
        rows = {row["plan_time"]: row for row in executions}
        starts = [skip.first for skip in self._skips]
        for place, state in seconds.places(self._states):
            at, skip = self._axis.instant(place), None
            if state in SKIPPED:
                skip = self._skips[bisect_right(starts, at) - 1]
            yield Mark(at, state, rows.get(at), skip)

    def _skip(self, row: Row) -> Skip:
        reason = State(row["reason"])
        through = row["through_plan_time"]
        pause = self._pause(min(through, self.local.end)) if reason is State.PAUSED else None
        gap = None
        if reason is State.MISSED:
            gaps = (one for one in self.runner_gaps if one.start <= through <= one.end)
            gap = next(gaps, None)
        return Skip(
            row["from_plan_time"], through, row["count"], reason, row["created_at"],
            row["blocked_by"], pause, gap,
        )  # fmt: skip

    def _pause(self, plan_time: datetime) -> Edit | None:
        """Return the edit that paused the job at the due_at of a plan_time, if it is known."""
        if not self.revisions:
            return None
        definition = self._history.at(plan_time).definition
        if definition is None:
            return None
        found = self._history.at(due_at(definition, self.key, plan_time))
        return _edit(self._rows[found.number], "paused") if found.state == "paused" else None


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

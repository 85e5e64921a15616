"""The state of a simulation: the schedules, the running executions, and the waiting ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from cronledger.rules.gates import required_scopes
from cronledger.rules.model import Handler, JobState, Overlap, Revision, ScopeKey
from cronledger.rules.plan_times import NEVER
from cronledger.rules.plans import ScheduleRow
from cronledger.rules.simulation_values import Cause, Executed, Series, Unstarted
from cronledger.rules.timeline import Planned, timeline


@dataclass(slots=True, eq=False)
class PoolState:
    queues: frozenset[str]
    free: int


@dataclass(slots=True, eq=False)
class ExecutionState:
    """An execution that runs. `planned` None: one that ran at the start.

    `gate`: what it has waited for. `is_replaced`: it ends without success. `is_observed`: it uses
    no slot, does not count for limits and blocks nothing, because another scheduler started it.
    """

    key: ScopeKey
    plan_time: datetime | None
    queue: str
    pool: PoolState | None
    start: datetime
    scope: "ScopeState | None" = None
    planned: Planned | None = None
    cause: Cause | None = None
    gate: "GateState | None" = None
    is_over: bool = False
    is_replaced: bool = False
    is_observed: bool = False


Required = tuple[ScopeKey, datetime | None]
"""A required plan_time; None: the scope has no schedule, so it never succeeds."""


@dataclass(slots=True, eq=False)
class GateState:
    """An execution that waits for what it requires, and then for its start.

    `missing`: the required plan_times, in their order. `opened_at`: when there are none any more.
    `upstream`: the job of the last one. `cause`: why it waits after that.
    """

    scope: "ScopeState"
    planned: Planned
    missing: dict[Required, None]
    opened_at: datetime | None = None
    upstream: str | None = None
    cause: Cause | None = None
    is_over: bool = False


class ScopeState:
    """The state of one schedule. `first`, `second`: its next active plan_times.

    `ready`, `second_ready`: when the planner can reach them, because they are due, and also the
    skipped ones before them.
    `cause`: why `first` waits. `is_listed`: it is in a list of those that wait for an end.
    `required`: the scopes that each execution waits for. `opened`: the executions whose gate is
    open, and which wait for the end of `blocker`. `job`, `revisions`: as they are planned with.
    `is_observed`: another scheduler starts it.
    """

    __slots__ = (
        "blocker", "cause", "cursor", "first", "holds", "is_blocked", "is_listed", "is_observed",
        "job", "number", "opened", "ready", "required", "revisions", "second", "second_ready",
        "series", "walk",
    )  # fmt: skip

    def __init__(self, number: int, series: Series, through: datetime) -> None:
        self.number, self.series = number, series
        self.required = required_scopes(series.job, series.key)
        self.is_observed = series.job.is_observed(through)
        self.revisions = series.revisions
        if self.is_observed:
            self.revisions = _started_elsewhere(series.revisions)
        elif self.required:
            self.revisions = _waiting_beside(series.revisions)
        elif series.job.observed:
            self.revisions = _changed(series.revisions, {"observed": False})
        self.job = self.revisions[-1].job
        self.opened: list[Waiting] = []
        self.cursor = series.after
        self.blocker: ExecutionState | None = None
        self.is_blocked = self.is_listed = False
        self.cause: Cause | None = None
        self.first: Planned | None = None
        self.second: Planned | None = None
        self.ready = self.second_ready = NEVER
        self.walk = timeline(self.row, series.revisions, through, {}).forward()
        ends = [revision.effective_from for revision in series.revisions[1:]] + [NEVER]
        self.holds = [
            (x.effective_from, min(end, x.paused_until or NEVER))
            for x, end in zip(series.revisions, ends, strict=True)
            if x.state is JobState.PAUSED
        ]

    @property
    def row(self) -> ScheduleRow:
        """The schedule row as the planner would read it."""
        return ScheduleRow(
            self.series.key, self.job.queue, self.cursor, 0,
            planned_skips=self.series.planned_skips,
        )  # fmt: skip

    def hold_end(self, at: datetime) -> datetime | None:
        """Return the end of the pause in which `at` lies, or None."""
        return next((end for start, end in self.holds if start <= at < end), None)


Waiting = tuple[datetime, int, int, ScopeState | GateState]
"""What waits for the end of an execution: its due_at, the number of its series, a unique number."""


def _waiting_beside(revisions: Sequence[Revision]) -> list[Revision]:
    """Let executions wait for other jobs beside a running one, unless overlap is `skip`, as a claim
    does.
    """
    return [
        one if one.job.overlap is Overlap.SKIP
        else replace(one, job=one.job.model_copy(update={"overlap": Overlap.ALLOW}))
        for one in revisions
    ]  # fmt: skip


def _started_elsewhere(revisions: Sequence[Revision]) -> list[Revision]:
    """Return revisions with which each plan_time runs, because its reports are expected."""
    started = {"handler": Handler.COMMAND, "observed": False, "overlap": Overlap.ALLOW}
    return _changed(revisions, started)


def _changed(revisions: Sequence[Revision], update: Mapping[str, Any]) -> list[Revision]:
    return [replace(one, job=one.job.model_copy(update=update)) for one in revisions]


def executed(
    scope: ScopeState, planned: Planned, execution: ExecutionState, end: datetime
) -> Executed:
    gate = execution.gate
    ready = planned.due_at
    upstream = None
    if gate is not None and gate.upstream is not None and gate.opened_at is not None:
        ready, upstream = gate.opened_at, gate.upstream
    return Executed(
        scope.number, planned.plan_time, planned.due_at, execution.start, end, execution.cause,
        ready, upstream,
    )  # fmt: skip


def unstarted(gate: GateState) -> Unstarted:
    number, planned = gate.scope.number, gate.planned
    if gate.opened_at is None:
        upstream = next(iter(gate.missing))[0].job_name
        return Unstarted(number, planned.plan_time, planned.due_at, Cause.UPSTREAM, upstream)
    assert gate.cause is not None
    return Unstarted(number, planned.plan_time, gate.opened_at, gate.cause)

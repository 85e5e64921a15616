"""The coming executions of all schedules in virtual time: when each starts, waits and ends.

The plan_times and their states are those of `timeline`, so pauses, retirements and calendars count
as in a claim. An execution that can start at its due_at starts there. In every other case, such as
a running predecessor or a lack of slots, the planner decides, with what runs at that instant.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from cronledger.rules.model import (
    CatchUp,
    Job,
    JobState,
    Overlap,
    Parked,
    Plan,
    Revision,
    ScheduleRow,
    ScopeKey,
    SkipReason,
)
from cronledger.rules.planner import Room, plan
from cronledger.rules.timeline import NEVER, Planned, SpecError, timeline

_END, _DUE = 0, 1
"""Kinds of events. At one instant, executions end before others are due."""


@dataclass(frozen=True, slots=True)
class Series:
    """The coming plan_times of one (job, scope), those after `after`.

    `revisions`: as the planner needs them, with the same job. Executions take `typical`, and rarely
    longer than `long`. `known`: both are from the history.
    """

    key: ScopeKey
    revisions: Sequence[Revision]
    after: datetime
    typical: timedelta
    long: timedelta
    known: bool = True

    @property
    def job(self) -> Job:
        """The definition of the job."""
        return self.revisions[-1].job


@dataclass(frozen=True, slots=True)
class Pool:
    """The slots of runners that serve the same queues."""

    queues: frozenset[str]
    slots: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """What bounds executions at once. `limits`: max_running of queues.

    A queue that no pool serves has unlimited slots.
    """

    pools: Sequence[Pool]
    limits: Mapping[str, int]

    def slots(self, queue: str) -> int | None:
        """Return the slots of the pools that serve a queue, or None if no pool serves it."""
        serving = [pool.slots for pool in self.pools if queue in pool.queues]
        return sum(serving) if serving else None


class Running(NamedTuple):
    """An execution that runs at the start, and when it will probably end."""

    key: ScopeKey
    queue: str
    until: datetime


class Cause(StrEnum):
    """Why an execution does not start at its due_at."""

    SLOTS = "slots"
    QUEUE = "queue limit"
    JOB = "job limit"
    OVERLAP = "overlap"
    PAUSE = "pause"


class Executed(NamedTuple):
    """One execution. `series`: its index. `cause`: why it started after its due_at, if it did."""

    series: int
    plan_time: datetime
    due_at: datetime
    start: datetime
    end: datetime
    cause: Cause | None


class Skipped(NamedTuple):
    """One plan_time that does not run."""

    series: int
    plan_time: datetime
    reason: SkipReason


class Unstarted(NamedTuple):
    """One plan_time that still waits at the end of the simulation."""

    series: int
    plan_time: datetime
    due_at: datetime
    cause: Cause


Outcome = Executed | Skipped | Unstarted


@dataclass(slots=True, eq=False)
class _Pool:
    queues: frozenset[str]
    free: int


@dataclass(slots=True, eq=False)
class _Execution:
    """An execution that runs. `planned` None: one that ran at the start."""

    job: str
    queue: str
    pool: _Pool | None
    start: datetime
    scope: "_Scope | None"
    planned: Planned | None
    cause: Cause | None
    is_over: bool = False


class _Scope:
    """The state of one schedule. `first`, `second`: its next active plan_times.

    `ready`, `second_ready`: when the planner can reach them, because they are due, and also the
    skipped ones before them.
    `cause`: why `first` waits. `is_listed`: it is in a list of those that wait for an end.
    """

    __slots__ = (
        "blocker", "cause", "cursor", "first", "holds", "is_blocked", "is_listed", "job", "number",
        "ready", "second", "second_ready", "series", "walk",
    )  # fmt: skip

    def __init__(self, number: int, series: Series, through: datetime) -> None:
        self.number, self.series, self.job = number, series, series.job
        self.cursor = series.after
        self.blocker: _Execution | None = None
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
        return ScheduleRow(self.series.key, self.job.queue, self.cursor, 0)

    def hold_end(self, at: datetime) -> datetime | None:
        """Return the end of the pause in which `at` lies, or None."""
        return next((end for start, end in self.holds if start <= at < end), None)


class Simulation:
    """Runs the schedules in (now, through]. `unreadable`: the series with an invalid schedule.

    `most_running`: by queue, the most executions at once. `outcomes` fills both.
    """

    def __init__(
        self,
        series: Sequence[Series],
        capacity: Capacity,
        running: Sequence[Running],
        now: datetime,
        through: datetime,
    ) -> None:
        self._now, self._through = now, through
        self._scopes = [_Scope(number, one, through) for number, one in enumerate(series)]
        self._pools = [_Pool(pool.queues, pool.slots) for pool in capacity.pools]
        self._limits = capacity.limits
        self._of_queue: dict[str, list[_Pool]] = {}
        self._of_job: Counter[str] = Counter()
        self._in_queue: Counter[str] = Counter()
        self._events: list[tuple[datetime, int, int, _Execution | _Scope]] = []
        self._numbers = count()
        self._for_job: dict[str, list[tuple[datetime, int]]] = defaultdict(list)
        self._for_queue: dict[str, list[tuple[datetime, int]]] = defaultdict(list)
        self._listed = 0
        self.unreadable: set[int] = set()
        self.most_running: Counter[str] = Counter()
        self._begin(running)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield what becomes of each plan_time. Executions are yielded when they end."""
        for scope in self._scopes:
            yield from self._read(scope)
            yield from self._read(scope)
            while scope.first is not None and scope.first.due_at <= self._now:
                scope.cursor = scope.first.plan_time  # due already: no part of what is coming
                yield from self._read(scope)
            self._wake(scope)
        while self._events and self._events[0][0] <= self._through:
            at, kind, _, subject = heappop(self._events)
            if kind == _END:
                assert isinstance(subject, _Execution)
                yield from self._end(subject, at)
            else:
                assert isinstance(subject, _Scope)
                yield from self._due(subject, at)
        yield from self._rest()

    # --- events -------------------------------------------------------------------------------

    def _begin(self, running: Sequence[Running]) -> None:
        known = {scope.series.key: scope for scope in self._scopes}
        for one in running:
            pool = self._free_pool(one.queue)
            scope = known.get(one.key)
            execution = _Execution(one.key.job_name, one.queue, pool, self._now, scope, None, None)
            self._add(execution, max(one.until, self._now))

    def _read(self, scope: _Scope) -> Iterator[Skipped]:
        """Move on to the next active plan_time. Yield the skipped ones before it."""
        scope.first, scope.ready = scope.second, scope.second_ready
        scope.second = None
        ready = self._now
        try:
            for planned in scope.walk:
                ready = max(ready, planned.due_at)
                if planned.reason is not None:
                    if planned.due_at > self._now:
                        yield Skipped(scope.number, planned.plan_time, planned.reason)
                elif planned.excluded is None:
                    scope.second, scope.second_ready = planned, ready
                    return
        except SpecError:
            self.unreadable.add(scope.number)

    def _wake(self, scope: _Scope) -> None:
        """Add the event at which the next plan_time is due."""
        if scope.first is not None:
            self._push(scope.ready, _DUE, scope)

    def _push(self, at: datetime, kind: int, subject: _Execution | _Scope) -> None:
        heappush(self._events, (at, kind, next(self._numbers), subject))

    def _due(self, scope: _Scope, at: datetime) -> Iterator[Skipped]:
        first, second = scope.first, scope.second
        if first is None or scope.is_listed or scope.is_blocked:
            return
        if scope.ready > at:
            self._wake(scope)
            return
        is_alone = second is None or scope.second_ready > at
        if is_alone and scope.hold_end(at) is None:
            yield from self._decide(scope, first, at)
        else:
            yield from self._plan(scope, at)

    def _decide(self, scope: _Scope, first: Planned, at: datetime) -> Iterator[Skipped]:
        """Decide about the only plan_time that is due as the planner would, at a fraction of its
        cost.
        """
        job, is_blocked = scope.job, scope.blocker is not None
        late = at - first.due_at
        on_time = late <= job.grace
        if not on_time and (job.catch_up is CatchUp.SKIP or late > job.catch_up_window):
            yield Skipped(scope.number, first.plan_time, SkipReason.MISSED)
        elif is_blocked and job.overlap is Overlap.SKIP:
            yield Skipped(scope.number, first.plan_time, SkipReason.OVERLAP)
        elif is_blocked and job.overlap is not Overlap.ALLOW:
            yield from self._plan(scope, at)
            return
        elif (missing := self._missing_room(scope)) is not None:
            self._queue(scope, first, missing)
            return
        else:
            self._start(scope, first, at)
        yield from self._settle(scope)

    def _settle(self, scope: _Scope) -> Iterator[Skipped]:
        assert scope.first is not None
        scope.cursor, scope.cause = scope.first.plan_time, None
        yield from self._read(scope)
        self._wake(scope)

    def _end(self, execution: _Execution, at: datetime) -> Iterator[Outcome]:
        if execution.is_over:
            return
        execution.is_over = True
        self._of_job[execution.job] -= 1
        self._in_queue[execution.queue] -= 1
        if execution.pool is not None:
            execution.pool.free += 1
        scope, planned = execution.scope, execution.planned
        if scope is not None and planned is not None:
            yield Executed(
                scope.number, planned.plan_time, planned.due_at, execution.start, at,
                execution.cause,
            )  # fmt: skip
        if scope is not None and scope.blocker is execution:
            scope.blocker = None
            if scope.is_blocked:
                scope.is_blocked = False
                yield from self._due(scope, at)
        yield from self._start_waiting(execution, at)

    def _start_waiting(self, ended: _Execution, at: datetime) -> Iterator[Skipped]:
        """Plan the schedules that wait for what an execution has used, the oldest first."""
        queues = {ended.queue} if ended.pool is None else {ended.queue, *ended.pool.queues}
        while self._listed:
            lists = [
                self._for_queue[queue] for queue in queues
                if self._for_queue.get(queue) and self._has_room(queue)
            ]  # fmt: skip
            waiting = self._for_job.get(ended.job)
            if waiting and self._has_job_room(ended.job, self._scopes[waiting[0][1]].job):
                lists.append(waiting)
            if not lists:
                return
            _, number = heappop(min(lists))
            scope = self._scopes[number]
            scope.is_listed = False
            self._listed -= 1
            yield from self._due(scope, at)

    def _rest(self) -> Iterator[Outcome]:
        """Yield the executions that run at the end, and what still waits."""
        for at, kind, _, one in sorted(self._events, key=lambda event: event[:3]):
            if kind == _END and isinstance(one, _Execution) and not one.is_over:
                one.is_over = True
                if one.scope is not None and one.planned is not None:
                    number, planned = one.scope.number, one.planned
                    yield Executed(
                        number, planned.plan_time, planned.due_at, one.start, at, one.cause
                    )
        for scope in self._scopes:
            first = scope.first
            if first is not None and scope.cause is not None and first.due_at <= self._through:
                yield Unstarted(scope.number, first.plan_time, first.due_at, scope.cause)

    # --- planning -----------------------------------------------------------------------------

    def _plan(self, scope: _Scope, at: datetime) -> Iterator[Skipped]:
        """Let the planner decide about the plan_times that are due."""
        blocker = None if scope.blocker is None else 1
        decided = plan(
            scope.row, scope.series.revisions, at, blocker=blocker, room=self._room(scope)
        )
        runs = {run.plan_time for run in decided.runs}
        while scope.first is not None and scope.first.plan_time <= decided.planned_through:
            first = scope.first
            if first.plan_time in runs:
                self._start(scope, first, at)
            else:
                yield Skipped(scope.number, first.plan_time, _reason(decided, first.plan_time))
            yield from self._read(scope)
        scope.cursor = decided.planned_through
        self._follow(scope, decided, at)

    def _follow(self, scope: _Scope, decided: Plan, at: datetime) -> None:
        """Arrange when the schedule is planned again."""
        first, scope.cause = scope.first, None
        if decided.replaces:
            assert scope.blocker is not None
            scope.is_blocked = True
            self._push(at, _END, scope.blocker)
        elif decided.parked is Parked.WAITING:
            scope.is_blocked, scope.cause = True, Cause.OVERLAP
        elif (end := scope.hold_end(at)) is not None:
            scope.cause = Cause.PAUSE if first is not None and first.due_at <= at else None
            if end < NEVER:
                self._push(end, _DUE, scope)
        elif first is None or decided.parked not in (None, Parked.LIMIT):
            return
        elif scope.ready > at:
            self._wake(scope)
        elif (missing := self._missing_room(scope)) is None:
            self._push(at, _DUE, scope)  # the planner ends a step after one run
        else:
            self._queue(scope, first, missing)

    def _queue(self, scope: _Scope, first: Planned, missing: Cause) -> None:
        """Let a schedule wait for the end of an execution, which frees a slot or a limit."""
        scope.cause, scope.is_listed = missing, True
        lists, name = self._for_queue, scope.job.queue
        if missing is Cause.JOB:
            lists, name = self._for_job, scope.job.name
        heappush(lists[name], (first.due_at, scope.number))
        self._listed += 1

    def _start(self, scope: _Scope, planned: Planned, at: datetime) -> None:
        job = scope.job
        cause = None
        if at > planned.due_at:
            cause = scope.cause or Cause.OVERLAP
        execution = _Execution(
            job.name, job.queue, self._free_pool(job.queue), at, scope, planned, cause
        )
        self._add(execution, at + scope.series.typical)

    def _add(self, execution: _Execution, end: datetime) -> None:
        if execution.pool is not None:
            execution.pool.free -= 1
        self._of_job[execution.job] += 1
        queue = execution.queue
        self._in_queue[queue] += 1
        self.most_running[queue] = max(self.most_running[queue], self._in_queue[queue])
        if execution.scope is not None:
            execution.scope.blocker = execution
        self._push(end, _END, execution)

    # --- room ---------------------------------------------------------------------------------

    def _serving(self, queue: str) -> list[_Pool]:
        """Return the pools that serve a queue, those with the fewest queues first."""
        found = self._of_queue.get(queue)
        if found is None:
            serving = [pool for pool in self._pools if queue in pool.queues]
            found = self._of_queue[queue] = sorted(serving, key=lambda pool: len(pool.queues))
        return found

    def _free_pool(self, queue: str) -> _Pool | None:
        return next((pool for pool in self._serving(queue) if pool.free > 0), None)

    def _has_job_room(self, name: str, job: Job) -> bool:
        return job.max_running is None or self._of_job[name] < job.max_running

    def _has_room(self, queue: str) -> bool:
        limit = self._limits.get(queue)
        if limit is not None and self._in_queue[queue] >= limit:
            return False
        return not self._serving(queue) or self._free_pool(queue) is not None

    def _missing_room(self, scope: _Scope) -> Cause | None:
        """Return what a start lacks, in the order of the planner."""
        job = scope.job
        if not self._has_job_room(job.name, job):
            return Cause.JOB
        limit = self._limits.get(job.queue)
        if limit is not None and self._in_queue[job.queue] >= limit:
            return Cause.QUEUE
        return None if self._has_room(job.queue) else Cause.SLOTS

    def _room(self, scope: _Scope) -> Room:
        job = scope.job
        limit, pools = self._limits.get(job.queue), self._serving(job.queue)
        return Room(
            slots=sum(max(0, pool.free) for pool in pools) if pools else 1_000_000,
            job=None if job.max_running is None else job.max_running - self._of_job[job.name],
            queue=None if limit is None else limit - self._in_queue[job.queue],
        )


def _reason(decided: Plan, plan_time: datetime) -> SkipReason:
    return next(
        skip.reason
        for skip in decided.skips
        if skip.from_plan_time <= plan_time <= skip.through_plan_time
    )

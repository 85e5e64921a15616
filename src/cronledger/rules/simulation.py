"""The coming executions of all schedules in virtual time: when each starts, waits and ends.

The plan_times and their states are those of `timeline`, so pauses, retirements and calendars count
as in a claim. An execution that can start at its due_at starts there. In every other case, such as
a running predecessor or a lack of slots, the planner decides, with what runs at that instant.

An execution of a job with a gate waits, without a slot, until each plan_time that it requires has
ended here. What was due before the start is taken as a success, unless it still runs.

Another scheduler starts the plan_times of an observed job when they are due, whatever else runs.
Its runs use no slot and do not count for limits. A job that is adopted until the end counts as a
job of replicas from the start.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import heappop, heappush
from itertools import count

from cronledger.rules.gates import wait_of
from cronledger.rules.model import CatchUp, ExecutionKey, Job, Overlap, Parked, ScopeKey, SkipReason
from cronledger.rules.plan_times import NEVER, SpecError, cron_of, due_at, lifetime
from cronledger.rules.planner import Room, plan
from cronledger.rules.plans import Plan
from cronledger.rules.simulation_state import (
    ExecutionState,
    GateState,
    PoolState,
    Required,
    ScopeState,
    Waiting,
    executed,
    unstarted,
)
from cronledger.rules.simulation_values import (
    Capacity,
    Cause,
    Outcome,
    Running,
    Series,
    Skipped,
    Unstarted,
)
from cronledger.rules.timeline import Planned

_END, _DUE, _EXPIRE = 0, 1, 2
"""Kinds of events. At one instant, executions end before others are due, and waits end last."""
_UNLIMITED = 1_000_000


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
        self._scopes = [ScopeState(number, one, through) for number, one in enumerate(series)]
        self._pools = [PoolState(pool.queues, pool.slots) for pool in capacity.pools]
        self._limits = capacity.limits
        self._of_queue: dict[str, list[PoolState]] = {}
        self._of_job: Counter[str] = Counter()
        self._in_queue: Counter[str] = Counter()
        self._events: list[tuple[datetime, int, int, ExecutionState | ScopeState | GateState]] = []
        self._numbers = count()
        self._for_job: dict[str, list[Waiting]] = defaultdict(list)
        self._for_queue: dict[str, list[Waiting]] = defaultdict(list)
        self._listed = 0
        self._of_key = {scope.series.key: scope for scope in self._scopes}
        self._gates: dict[Required, list[GateState]] = defaultdict(list)
        self._waiting_gates: dict[GateState, None] = {}
        self._running_now: set[Required] = set()
        self._succeeded: dict[ScopeKey, set[datetime]] = {
            key: set() for scope in self._scopes for key in scope.required
        }
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
            if isinstance(subject, ExecutionState):
                yield from self._end(subject, at)
            elif isinstance(subject, ScopeState):
                yield from self._due(subject, at)
            elif kind == _EXPIRE:
                yield from self._expire(subject, at)
            else:
                self._start_open(subject, at)
        yield from self._rest()

    # --- events -------------------------------------------------------------------------------

    def _begin(self, running: Sequence[Running]) -> None:
        for one in running:
            pool, scope = self._free_pool(one.queue), self._of_key.get(one.key)
            execution = ExecutionState(
                one.key, one.plan_time, one.queue, None if one.is_observed else pool, self._now,
                scope, is_observed=one.is_observed,
            )  # fmt: skip
            self._running_now.add((one.key, one.plan_time))
            self._add(execution, max(one.until, self._now))

    def _read(self, scope: ScopeState) -> Iterator[Skipped]:
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

    def _wake(self, scope: ScopeState) -> None:
        """Add the event at which the next plan_time is due."""
        if scope.first is not None:
            self._push(scope.ready, _DUE, scope)

    def _push(
        self, at: datetime, kind: int, subject: ExecutionState | ScopeState | GateState
    ) -> None:
        heappush(self._events, (at, kind, next(self._numbers), subject))

    def _due(self, scope: ScopeState, at: datetime) -> Iterator[Skipped]:
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

    def _decide(self, scope: ScopeState, first: Planned, at: datetime) -> Iterator[Skipped]:
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

    def _settle(self, scope: ScopeState) -> Iterator[Skipped]:
        assert scope.first is not None
        scope.cursor, scope.cause = scope.first.plan_time, None
        yield from self._read(scope)
        self._wake(scope)

    def _end(self, execution: ExecutionState, at: datetime) -> Iterator[Outcome]:
        if execution.is_over:
            return
        execution.is_over = True
        if not execution.is_observed:
            self._of_job[execution.key.job_name] -= 1
            self._in_queue[execution.queue] -= 1
        if execution.pool is not None:
            execution.pool.free += 1
        scope, planned = execution.scope, execution.planned
        if scope is not None and planned is not None:
            yield executed(scope, planned, execution, at)
        self._succeed(execution, at)
        if scope is not None and scope.blocker is execution:
            scope.blocker = None
            if scope.is_blocked:
                scope.is_blocked = False
                yield from self._due(scope, at)
            if scope.opened:
                self._start_open(heappop(scope.opened)[3], at)
        yield from self._start_waiting(execution, at)

    def _start_waiting(self, ended: ExecutionState, at: datetime) -> Iterator[Skipped]:
        """Plan the schedules that wait for what an execution has used, the oldest first."""
        queues = {ended.queue} if ended.pool is None else {ended.queue, *ended.pool.queues}
        while self._listed:
            lists = [
                self._for_queue[queue] for queue in queues
                if self._for_queue.get(queue) and self._has_room(queue)
            ]  # fmt: skip
            name = ended.key.job_name
            waiting = self._for_job.get(name)
            if waiting and self._has_job_room(name, self._scopes[waiting[0][1]].job):
                lists.append(waiting)
            if not lists:
                return
            *_, one = heappop(min(lists))
            self._listed -= 1
            if isinstance(one, GateState):
                self._start_open(one, at)
                continue
            one.is_listed = False
            yield from self._due(one, at)

    def _rest(self) -> Iterator[Outcome]:
        """Yield the executions that run at the end, and what still waits."""
        for at, kind, _, one in sorted(self._events, key=lambda event: event[:3]):
            if kind == _END and isinstance(one, ExecutionState) and not one.is_over:
                one.is_over = True
                if one.scope is not None and one.planned is not None:
                    yield executed(one.scope, one.planned, one, at)
        for gate in self._waiting_gates:
            yield unstarted(gate)
        for scope in self._scopes:
            first = scope.first
            if first is not None and scope.cause is not None and first.due_at <= self._through:
                yield Unstarted(scope.number, first.plan_time, first.due_at, scope.cause)

    # --- planning -----------------------------------------------------------------------------

    def _plan(self, scope: ScopeState, at: datetime) -> Iterator[Skipped]:
        """Let the planner decide about the plan_times that are due."""
        blocker = None if scope.blocker is None else 1
        decided = plan(scope.row, scope.revisions, at, blocker=blocker, room=self._room(scope))
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

    def _follow(self, scope: ScopeState, decided: Plan, at: datetime) -> None:
        """Arrange when the schedule is planned again."""
        first, scope.cause = scope.first, None
        if decided.replaces:
            assert scope.blocker is not None
            scope.is_blocked = scope.blocker.is_replaced = True
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

    def _queue(self, scope: ScopeState, first: Planned, missing: Cause) -> None:
        """Let a schedule wait for the end of an execution, which frees a slot or a limit."""
        scope.cause, scope.is_listed = missing, True
        self._list(scope, first, scope, missing)

    def _list(
        self, scope: ScopeState, first: Planned, waiting: ScopeState | GateState, missing: Cause
    ) -> None:
        lists, name = self._for_queue, scope.job.queue
        if missing is Cause.JOB:
            lists, name = self._for_job, scope.job.name
        heappush(lists[name], (first.due_at, scope.number, next(self._numbers), waiting))
        self._listed += 1

    def _start(self, scope: ScopeState, planned: Planned, at: datetime) -> None:
        if scope.required:
            self._wait(scope, planned, at)
            return
        cause = None
        if at > planned.due_at:
            cause = scope.cause or Cause.OVERLAP
        self._run(scope, planned, at, cause, None)

    def _run(
        self,
        scope: ScopeState,
        planned: Planned,
        at: datetime,
        cause: Cause | None,
        gate: GateState | None,
    ) -> None:
        job = scope.job
        pool = None if scope.is_observed else self._free_pool(job.queue)
        execution = ExecutionState(
            scope.series.key, planned.plan_time, job.queue, pool, at, scope, planned, cause, gate,
            is_observed=scope.is_observed,
        )  # fmt: skip
        self._add(execution, at + scope.series.typical)

    def _add(self, execution: ExecutionState, end: datetime) -> None:
        if not execution.is_observed:
            self._take(execution)
        self._push(end, _END, execution)

    def _take(self, execution: ExecutionState) -> None:
        """Count an execution of a replica for its slot and its limits."""
        if execution.pool is not None:
            execution.pool.free -= 1
        self._of_job[execution.key.job_name] += 1
        queue = execution.queue
        self._in_queue[queue] += 1
        self.most_running[queue] = max(self.most_running[queue], self._in_queue[queue])
        if execution.scope is not None:
            execution.scope.blocker = execution

    # --- gates --------------------------------------------------------------------------------

    def _wait(self, scope: ScopeState, planned: Planned, at: datetime) -> None:
        """Let an execution wait for what it requires, unless all of it has ended."""
        wait = wait_of(ExecutionKey(*scope.series.key, planned.plan_time), planned.revision)
        found = (one for key in scope.required for one in self._missing(key, wait.after, planned))
        gate = GateState(scope, planned, dict.fromkeys(found))
        self._waiting_gates[gate] = None
        if not gate.missing:
            gate.opened_at, gate.cause = planned.due_at, scope.cause
            self._start_open(gate, at)
            return
        for one in gate.missing:
            self._gates[one].append(gate)
        if wait.length is not None and wait.length < NEVER - at:
            self._push(at + wait.length, _EXPIRE, gate)

    def _missing(self, key: ScopeKey, after: datetime, planned: Planned) -> Iterator[Required]:
        """Yield the plan_times of a required scope that have not succeeded yet."""
        scope = self._of_key.get(key)
        if scope is None or scope.number in self.unreadable:
            yield key, None
            return
        job, calendar = scope.job, scope.revisions[-1].calendar
        cron = cron_of(job, key, calendar)
        if cron is None:
            return
        for plan_time in cron.included.plan_times(*lifetime(job, after, planned.plan_time)):
            is_past = due_at(job, key, plan_time) <= self._now
            is_past = is_past and (key, plan_time) not in self._running_now
            if not is_past and plan_time not in self._succeeded[key]:
                yield key, plan_time

    def _succeed(self, execution: ExecutionState, at: datetime) -> None:
        """Open the gates that an execution that has ended was the last one to close."""
        key, plan_time = execution.key, execution.plan_time
        if key not in self._succeeded or plan_time is None or execution.is_replaced:
            return
        self._succeeded[key].add(plan_time)
        for gate in self._gates.pop((key, plan_time), ()):
            del gate.missing[key, plan_time]
            if not gate.missing and not gate.is_over:
                gate.opened_at, gate.upstream = at, key.job_name
                self._start_open(gate, at)

    def _start_open(self, gate: "GateState | ScopeState", at: datetime) -> None:
        """Start an execution whose gate is open, or let it wait as other pending ones do."""
        assert isinstance(gate, GateState) and gate.opened_at is not None
        scope, planned = gate.scope, gate.planned
        overlap = scope.series.job.overlap
        if (end := scope.hold_end(at)) is not None:
            gate.cause = Cause.PAUSE
            if end < NEVER:
                self._push(end, _DUE, gate)
        elif scope.blocker is not None and overlap is not Overlap.ALLOW:
            gate.cause = Cause.OVERLAP
            heappush(scope.opened, (planned.due_at, scope.number, next(self._numbers), gate))
            if overlap is Overlap.REPLACE:
                scope.blocker.is_replaced = True
                self._push(at, _END, scope.blocker)
        elif (missing := self._missing_limits(scope)) is not None:
            gate.cause = missing
            self._list(scope, planned, gate, missing)
        else:
            gate.is_over = True
            del self._waiting_gates[gate]
            self._run(scope, planned, at, gate.cause if at > gate.opened_at else None, gate)

    def _expire(self, gate: GateState, at: datetime) -> Iterator[Skipped]:
        """End a wait that has reached wait_at_most."""
        if gate.opened_at is not None:
            return
        gate.is_over = True
        del self._waiting_gates[gate]
        upstream, planned = next(iter(gate.missing))[0].job_name, gate.planned
        yield Skipped(
            gate.scope.number, planned.plan_time, SkipReason.UPSTREAM, upstream,
            at - planned.due_at,
        )  # fmt: skip

    # --- room ---------------------------------------------------------------------------------

    def _serving(self, queue: str) -> list[PoolState]:
        """Return the pools that serve a queue, those with the fewest queues first."""
        found = self._of_queue.get(queue)
        if found is None:
            serving = [pool for pool in self._pools if queue in pool.queues]
            found = self._of_queue[queue] = sorted(serving, key=lambda pool: len(pool.queues))
        return found

    def _free_pool(self, queue: str) -> PoolState | None:
        return next((pool for pool in self._serving(queue) if pool.free > 0), None)

    def _has_job_room(self, name: str, job: Job) -> bool:
        return job.max_running is None or self._of_job[name] < job.max_running

    def _has_room(self, queue: str) -> bool:
        limit = self._limits.get(queue)
        if limit is not None and self._in_queue[queue] >= limit:
            return False
        return not self._serving(queue) or self._free_pool(queue) is not None

    def _missing_room(self, scope: ScopeState) -> Cause | None:
        """Return the limit that prevents a start. A waiting gated execution needs no slot, nor does
        a run of another scheduler.
        """
        return None if scope.required or scope.is_observed else self._missing_limits(scope)

    def _missing_limits(self, scope: ScopeState) -> Cause | None:
        """Return the first limit that prevents a start, in the order of the planner."""
        job = scope.job
        if not self._has_job_room(job.name, job):
            return Cause.JOB
        limit = self._limits.get(job.queue)
        if limit is not None and self._in_queue[job.queue] >= limit:
            return Cause.QUEUE
        return None if self._has_room(job.queue) else Cause.SLOTS

    def _room(self, scope: ScopeState) -> Room:
        if scope.required or scope.is_observed:
            return Room(_UNLIMITED, None, None)
        job = scope.job
        limit, pools = self._limits.get(job.queue), self._serving(job.queue)
        return Room(
            slots=sum(max(0, pool.free) for pool in pools) if pools else _UNLIMITED,
            job=None if job.max_running is None else job.max_running - self._of_job[job.name],
            queue=None if limit is None else limit - self._in_queue[job.queue],
        )


def _reason(decided: Plan, plan_time: datetime) -> SkipReason:
    return next(
        skip.reason
        for skip in decided.skips
        if skip.from_plan_time <= plan_time <= skip.through_plan_time
    )

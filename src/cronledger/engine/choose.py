"""What a claim decides between its reads and its writes: no connection, no waiting.

It is given what statement 1 locked and statement 2 read, and fills a `Round`: executions to take
again, plan_times to run, skips, how far cursors move, who is parked.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID, uuid4

import structlog

from cronledger.engine.revisions import Revisions
from cronledger.ledger.rows import AgainClaim, DueAgain, JobFacts, NewClaim
from cronledger.rules.model import (
    ExecutionKey,
    Handler,
    Overlap,
    Parked,
    Plan,
    Run,
    ScheduleRow,
    ScopeKey,
    Skip,
)
from cronledger.rules.planner import Room, plan

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What this runner can run."""

    functions: Collection[str]
    allow_sql_commands: bool = False

    def runs(self, facts: JobFacts) -> bool:
        if facts.handler == Handler.COMMAND:
            return True
        return facts.handler == Handler.PYTHON and facts.function in self.functions

    def refusal(self, facts: JobFacts) -> str | None:
        """Why no runner of this configuration may run the job; becomes its spec_error."""
        if facts.handler == Handler.COMMAND and facts.from_sql and not self.allow_sql_commands:
            return (
                "handler = command: commands of jobs written by SQL are not allowed; declare the "
                "job in a file, or set CRONLEDGER_ALLOW_SQL_COMMANDS=true on every replica"
            )
        return None


@dataclass(slots=True)
class Held:
    """What the locks and reads of one claim brought."""

    now: datetime
    again: Sequence[DueAgain]
    schedules: Sequence[ScheduleRow]
    jobs: Mapping[str, JobFacts]
    revisions: Revisions
    running: Mapping[ScopeKey, dict[int, datetime]]  # execution id -> plan_time
    locked_jobs: Collection[str]  # limited jobs whose row is held
    locked_queues: Collection[str]  # queues without a limit, or whose row is held
    queue_room: dict[str, int]  # of limited queues
    live_functions: Collection[tuple[str, str]] | None  # with their queues; None: not asked yet


@dataclass(slots=True)
class Round:
    """What one claim writes."""

    again: list[AgainClaim] = field(default_factory=list)
    new: list[NewClaim] = field(default_factory=list)
    skips: list[tuple[ScopeKey, Skip, bool]] = field(default_factory=list)
    plans: list[tuple[ScopeKey, Plan]] = field(default_factory=list)
    replaced: list[ScopeKey] = field(default_factory=list)
    parked: list[tuple[ScopeKey, str]] = field(
        default_factory=list
    )  # waiting and limit, with queue
    spec_errors: list[tuple[str, int, str]] = field(default_factory=list)
    queues: dict[UUID, str] = field(default_factory=dict)  # of the rows claimed, by token
    not_here: set[str] = field(default_factory=set)
    no_runner: set[str] = field(default_factory=set)
    busy: int = 0  # rows that were locked and left for another round

    @property
    def writes(self) -> bool:
        return bool(self.again or self.new or self.skips or self.plans or self.replaced)

    def claims(self) -> list[tuple[UUID, ExecutionKey]]:
        """Tokens and keys of what is claimed."""
        return [(x.token, x.key) for x in self.again] + [(x.token, x.key) for x in self.new]


class Chooser:
    """Fills one `Round` from one `Held`, with `slots` free slots."""

    def __init__(self, held: Held, abilities: Abilities, slots: int) -> None:
        self._held = held
        self._abilities = abilities
        self._slots = slots
        self._room = {
            name: facts.room for name, facts in held.jobs.items() if facts.room is not None
        }
        self._taken: dict[ScopeKey, int] = {}  # scope -> execution claimed again in this round
        self.round = Round()

    def choose(self) -> Round:
        for due in self._held.again:
            self._take_again(due)
        for row in self._held.schedules:
            self._plan(row)
        return self.round

    # -- executions that exist ------------------------------------------------------------------

    def _take_again(self, due: DueAgain) -> None:
        facts = self._held.jobs.get(due.key.job_name)
        if facts is None or facts.retired_at is not None:
            return  # the sweeper's
        if facts.paused_at is not None and not _forced(due, facts.paused_at):
            return  # paused between the lock and the read
        if self._slots <= 0 or self._is_unlocked(facts, due.queue):
            self.round.busy += 1
            return
        error = self._held.revisions.broken(facts.name) or self._abilities.refusal(facts)
        if error is not None or not self._abilities.runs(facts):
            self._name_error(facts, error)
            self.round.not_here.add(facts.name)
            return
        job = self._held.revisions.newest(facts.name).job
        steals = due.status == "RUNNING"
        if job.overlap is not Overlap.ALLOW:
            others = self._held.running.get(due.key.scope, {}).keys() - {due.id}
            if others or due.key.scope in self._taken:
                return
        # A stale row holds its place already: stealing it takes none.
        if not steals and not self._reserve(facts.name, due.queue):
            return
        self._slots -= 1
        self._taken[due.key.scope] = due.id
        claim = AgainClaim(due.key, uuid4(), job.stale_timeout, job.allow_stale_reentry)
        self.round.queues[claim.token] = due.queue
        self.round.again.append(claim)

    def _is_unlocked(self, facts: JobFacts, queue: str) -> bool:
        """A limited job or queue whose row another transaction holds: not claimed this round."""
        limited = facts.room is not None and facts.name not in self._held.locked_jobs
        return limited or queue not in self._held.locked_queues

    def _reserve(self, job: str, queue: str) -> bool:
        if self._room.get(job, 1) <= 0 or self._held.queue_room.get(queue, 1) <= 0:
            return False
        self._reserved(job, queue)
        return True

    def _reserved(self, job: str, queue: str, count: int = 1) -> None:
        if job in self._room:
            self._room[job] -= count
        if queue in self._held.queue_room:
            self._held.queue_room[queue] -= count

    # -- plan_times -----------------------------------------------------------------------------

    def _plan(self, row: ScheduleRow) -> None:
        name = row.key.job_name
        facts = self._held.jobs.get(name)
        revisions = self._held.revisions.since(name, row.planned_revision)
        if not revisions:
            self._settle(row, _park(row, Parked.RETIRED))
            return
        if facts is not None and self._is_unlocked(facts, row.queue):
            self.round.busy += 1
            return
        if facts is not None and facts.retired_at is None:
            error = self._held.revisions.broken(name) or self._abilities.refusal(facts)
            if error is not None:
                self._settle(row, _park(row, Parked.SPEC_ERROR), facts, error)
                return
        room = Room(self._slots, self._room.get(name), self._held.queue_room.get(row.queue))
        try:
            planned = plan(
                row, revisions, self._held.now, blocker=self._blocker(row.key), room=room
            )
        except Exception as bug:  # a job must not stop the others, whatever is wrong with it
            log.exception("planner_failed", job=name, scope=row.key.scope_id)
            error = f"the planner failed: {type(bug).__name__}: {bug}"
            self._settle(row, _park(row, Parked.SPEC_ERROR), facts, error)
            return
        if planned.runs and facts is not None and not self._abilities.runs(facts):
            self._leave_to_others(row, facts)
            return
        self._settle(row, planned, facts, planned.spec_error)
        for run in planned.runs:
            self._run(row, run)

    def _blocker(self, scope: ScopeKey) -> int | None:
        running = self._held.running.get(scope)
        return self._taken.get(scope) or (min(running) if running else None)

    def _leave_to_others(self, row: ScheduleRow, facts: JobFacts) -> None:
        """Another live runner has the handler and will take the row; without one it is parked."""
        live = self._held.live_functions
        wanted = facts.function if facts.handler == Handler.PYTHON else None
        if live is None or (wanted is not None and (row.queue, wanted) in live):
            self.round.not_here.add(facts.name)
            return
        self.round.no_runner.add(facts.name)
        self._settle(row, _park(row, Parked.NO_RUNNER), facts)

    def _settle(
        self,
        row: ScheduleRow,
        planned: Plan,
        facts: JobFacts | None = None,
        error: str | None = None,
    ) -> None:
        self.round.plans.append((row.key, planned))
        self.round.skips.extend(
            (row.key, skip, index == 0) for index, skip in enumerate(planned.skips)
        )
        if planned.replaces:
            self.round.replaced.append(row.key)
        if planned.parked in (Parked.WAITING, Parked.LIMIT):
            self.round.parked.append((row.key, row.queue))
        if facts is not None:
            self._name_error(facts, error)

    def _name_error(self, facts: JobFacts, error: str | None) -> None:
        named = (facts.name, facts.revision, error)
        if error is not None and facts.spec_error != error and named not in self.round.spec_errors:
            self.round.spec_errors.append((facts.name, facts.revision, error))

    def _run(self, row: ScheduleRow, run: Run) -> None:
        self._slots -= 1
        self._reserved(row.key.job_name, row.queue)
        definition = run.revision.job
        current = self._held.revisions.newest(row.key.job_name).job
        number = run.revision.revision
        # The queue of now, also for a plan_time of an earlier revision: its room was asked for.
        claim = NewClaim(
            ExecutionKey(*row.key, run.plan_time), number, row.queue, run.due_at,
            self._held.revisions.payload(row.key.job_name, number), definition.max_attempts,
            uuid4(), current.stale_timeout,
        )  # fmt: skip
        self.round.queues[claim.token] = row.queue
        self.round.new.append(claim)


def _forced(due: DueAgain, paused_at: datetime) -> bool:
    """A manual execution made in the pause."""
    return due.status == "PENDING" and due.key.plan_time > paused_at


def _park(row: ScheduleRow, why: Parked) -> Plan:
    """The row leaves the due index as it is: nothing is settled."""
    return Plan(row.planned_through, row.planned_revision, row.next_plan_time, None, why)

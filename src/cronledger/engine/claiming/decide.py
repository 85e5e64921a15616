"""What a claim decides between its reads and its writes: no connection, no waiting.

From the locked schedules and what was read of them, the `Decider` fills a `ClaimDecision`: the
plan_times to run, the skips, the new cursors, and the schedules to park.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID, uuid4

from cronledger.engine.claiming.revisions import Revisions
from cronledger.engine.peers import NewerPeers
from cronledger.ledger.rows import JobFacts, NewClaim, Taken
from cronledger.logger import get_logger
from cronledger.rules.model import (
    CatchUp,
    ExecutionKey,
    Handler,
    Job,
    Overlap,
    Parked,
    Plan,
    Revision,
    Run,
    ScheduleRow,
    ScopeKey,
    Skip,
)
from cronledger.rules.planner import STEP, Room, plan

log = get_logger(__name__)

KINDS = (Handler.PYTHON, Handler.COMMAND, Handler.SQL, Handler.HTTP)
PLANNED_AT_ONCE = 100_000
"""Plan_times that one claim settles at most, over all its schedules: about a second, in which it
holds their locks. After an outage what is left is due again at once."""
UNCLAIMED_STEP = 100
"""Firings of one external schedule that one claim plans at most: they take no slot."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What this runner can run: handler kinds, and of Python which functions."""

    functions: Collection[str]
    allow_sql_commands: bool = False
    kinds: Collection[Handler] = KINDS
    peers: NewerPeers = field(default_factory=lambda: NewerPeers({}))

    def runs(self, facts: JobFacts) -> bool:
        if facts.handler == Handler.PYTHON:
            return facts.function in self.functions
        return facts.handler in self.kinds

    def plans(self, facts: JobFacts) -> bool:
        """Whether this runner plans its firings; those of `external` any runner does."""
        return facts.handler == Handler.EXTERNAL or self.runs(facts)

    def refusal(self, facts: JobFacts) -> str | None:
        """Why no runner of this configuration may run the job; becomes its spec_error."""
        if facts.handler == Handler.COMMAND and facts.from_sql and not self.allow_sql_commands:
            return (
                "handler = command: commands of jobs written by SQL are not allowed; declare the "
                "job in a file, or set CRONLEDGER_ALLOW_SQL_COMMANDS=true on every replica"
            )
        return None


@dataclass(slots=True)
class ClaimInputs:
    """What the locks and reads of one claim brought."""

    now: datetime
    schedules: Sequence[ScheduleRow]
    jobs: Mapping[str, JobFacts]
    revisions: Revisions
    running: Mapping[ScopeKey, int]  # the first execution that is RUNNING
    unclaimed: Mapping[ScopeKey, int]  # of external jobs: the first PENDING one of the schedule
    locked_jobs: Collection[str]  # limited jobs whose row is held
    locked_queues: Collection[str]  # queues without a limit, or whose row is held
    queue_room: dict[str, int]  # of limited queues
    live_functions: Collection[tuple[str, str]] | None  # with their queues; None: not asked yet


@dataclass(slots=True)
class ClaimDecision:
    """What one claim writes."""

    taken: list[Taken] = field(default_factory=list)  # claimed already, by claim_due
    new: list[NewClaim] = field(default_factory=list)
    pending: list[NewClaim] = field(default_factory=list)  # for workers that claim by themselves
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
    left: set[str] = field(default_factory=set)  # a runner with newer tzdata or croniter plans them
    busy: int = 0  # rows that were locked and left for another round
    slotless: int = 0  # due rows that were left because those before them have taken all slots

    @property
    def writes(self) -> bool:
        return bool(self.taken or self.new or self.skips or self.plans or self.replaced)

    def claims(self) -> list[tuple[UUID, ExecutionKey]]:
        """Tokens and keys of what is claimed."""
        again = [(x.claimed.token, x.claimed.key) for x in self.taken]
        return again + [(x.token, x.key) for x in self.new]


class Decider:
    """Fills one `ClaimDecision` from one `ClaimInputs`, with `slots` free slots."""

    def __init__(
        self, held: ClaimInputs, abilities: Abilities, slots: int, taken: Sequence[Taken] = ()
    ) -> None:
        self._held = held
        self._abilities = abilities
        self._slots = slots - len(taken)
        self._room = {
            name: facts.room for name, facts in held.jobs.items() if facts.room is not None
        }
        self._step = max(1, min(STEP, PLANNED_AT_ONCE // max(1, len(held.schedules))))
        queues = {x.claimed.token: x.queue for x in taken}
        self.round = ClaimDecision(taken=list(taken), queues=queues)

    def choose(self) -> ClaimDecision:
        for row in self._held.schedules:
            self._plan(row)
        return self.round

    def _is_unlocked(self, facts: JobFacts, queue: str) -> bool:
        """A limited job or queue whose row another transaction holds: not claimed this round."""
        limited = facts.room is not None and facts.name not in self._held.locked_jobs
        return limited or queue not in self._held.locked_queues

    def _reserved(self, job: str, queue: str) -> None:
        if job in self._room:
            self._room[job] -= 1
        if queue in self._held.queue_room:
            self._held.queue_room[queue] -= 1

    def _plan(self, row: ScheduleRow) -> None:
        name = row.key.job_name
        facts = self._held.jobs.get(name)
        revisions = self._held.revisions.since(name, row.planned_revision)
        if not revisions:
            self._settle(row, _park(row, Parked.RETIRED))
            return
        if facts is not None and self._is_left(row, facts):
            return
        if facts is not None and facts.retired_at is None:
            error = self._held.revisions.broken(name) or self._abilities.refusal(facts)
            if error is not None:
                self._settle(row, _park(row, Parked.SPEC_ERROR), facts, error)
                return
        room = Room(self._slots, self._room.get(name), self._held.queue_room.get(row.queue))
        blocker = self._held.running.get(row.key)
        external = facts is not None and facts.handler == Handler.EXTERNAL
        if external:
            room = Room(UNCLAIMED_STEP, None, None)  # limits are for its worker's claim
            if blocker is None:
                blocker, revisions = self._behind_unclaimed(row.key, revisions)
        try:
            planned = plan(
                row, revisions, self._held.now, blocker=blocker, room=room, step=self._step
            )
        except Exception as bug:  # a job must not stop the others, whatever is wrong with it
            log.exception("planner_failed", job=name, scope=row.key.scope_id)
            error = f"the planner failed: {type(bug).__name__}: {bug}"
            self._settle(row, _park(row, Parked.SPEC_ERROR), facts, error)
            return
        if planned.runs and facts is not None and not self._abilities.plans(facts):
            self._leave_to_others(row, facts)
            return
        self._settle(row, planned, facts, planned.spec_error)
        for run in planned.runs:
            if external:
                self.round.pending.append(self._claim(row, run))
            else:
                self._run(row, run)

    def _is_left(self, row: ScheduleRow, facts: JobFacts) -> bool:
        """Whether the row stays due as it is, for another round or another runner."""
        if self._is_unlocked(facts, row.queue):
            self.round.busy += 1
            return True
        if facts.retired_at is not None or self._held.revisions.broken(facts.name) is not None:
            return False
        job = self._held.revisions.newest(facts.name).job
        if self._abilities.peers.leaves(job, row):
            self.round.left.add(facts.name)
            return True
        if self._lacks_slot(row, job) and facts.paused_at is None:
            self.round.slotless += 1
            return True
        return False

    def _lacks_slot(self, row: ScheduleRow, job: Job) -> bool:
        """Schedules before this one took the last slot, and it needs one: a backlog of many is not
        to be walked again and again for the few of them that fit in. Where what waited took all
        slots, it is planned: what it misses meanwhile is recorded. One that was woken is planned
        too, once: if it needs a slot, it is due from then on."""
        taken = self._slots <= 0 and bool(self.round.new) and not row.woken
        blocked = row.key in self._held.running and job.overlap is not Overlap.ALLOW
        return taken and job.handler is not Handler.EXTERNAL and not blocked

    def _behind_unclaimed(
        self, scope: ScopeKey, revisions: list[Revision]
    ) -> tuple[int | None, list[Revision]]:
        """A firing that no worker has claimed yet stands for the later ones, which are skips
        `overlap`: workers that were away for a day find one execution and not a day's. Not where
        all are wanted: `allow`, and `wait` with `catch_up = all`."""
        waiting, newest = self._held.unclaimed.get(scope), revisions[-1]
        job = newest.job
        queues_all = job.overlap is Overlap.WAIT and job.catch_up is CatchUp.ALL
        if waiting is None or job.overlap is Overlap.ALLOW or queues_all:
            return None, revisions
        job = job.model_copy(update={"overlap": Overlap.SKIP})
        return waiting, [*revisions[:-1], replace(newest, job=job)]

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
        claim = self._claim(row, run)
        self.round.queues[claim.token] = row.queue
        self.round.new.append(claim)

    def _claim(self, row: ScheduleRow, run: Run) -> NewClaim:
        definition = run.revision.job
        current = self._held.revisions.newest(row.key.job_name).job
        number = run.revision.revision
        # The queue of now, also for a plan_time of an earlier revision: its room was asked for.
        return NewClaim(
            ExecutionKey(*row.key, run.plan_time), number, row.queue, run.due_at,
            self._held.revisions.payload(row.key.job_name, number), definition.max_attempts,
            uuid4(), current.stale_timeout,
        )  # fmt: skip


def _park(row: ScheduleRow, why: Parked) -> Plan:
    """The row leaves the due index as it is: nothing is settled."""
    return Plan(row.planned_through, row.planned_revision, row.next_plan_time, None, why)

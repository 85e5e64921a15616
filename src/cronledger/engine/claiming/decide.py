"""The decisions of a claim, between its reads and its writes. No connection and no await."""

from dataclasses import dataclass, field, replace
from datetime import datetime

from cronledger.engine.claiming.abilities import Abilities
from cronledger.engine.claiming.inputs import ClaimInputs
from cronledger.engine.claiming.shared_plans import SharedPlans
from cronledger.engine.claiming.tokens import fresh_tokens
from cronledger.ledger.claim_rows import JobFacts
from cronledger.ledger.rows import Advance, BrokenJob, NewClaim, NewReported, NewSkip
from cronledger.logs.loggers import get_logger
from cronledger.rules.model import (
    HOST,
    RUN_BY_OTHERS,
    CatchUp,
    ExecutionKey,
    Handler,
    Job,
    JobOnHost,
    Overlap,
    Parked,
    Revision,
    ScopeKey,
)
from cronledger.rules.plan_times import TICK
from cronledger.rules.planner import STEP, Room
from cronledger.rules.plans import Plan, Run, ScheduleRow

log = get_logger(__name__)

MAX_PLAN_TIMES = 100_000
"""The maximum number of plan_times that one claim decides, over all its schedules. This takes about
a second, during which the claim holds their locks. After an outage, the rest is due again at
once."""
UNCLAIMED_STEP = 100
"""The maximum number of plan_times that one claim plans for an external or gated schedule. They
take no slot."""


@dataclass(slots=True)
class ClaimDecision:
    """Everything that one claim writes.

    `new`: executions to insert as RUNNING. `pending`: executions to insert as PENDING, for workers
    outside of cronledger, or because they wait for other jobs. `reported`: reports of observed
    jobs that become executions. `replaced`: RUNNING executions that
    get a cancel request. `parked`: scopes parked as `waiting` or `limit`, with their queues.
    `excluded_jobs`: jobs that other live runners have to plan. `no_runner`: jobs that no live
    runner can run, with the host on which they have to run. `delegated`: jobs that a runner with
    newer zone data plans. `slotless`: the number of due schedules that were not planned, because
    others took all slots.
    """

    new: list[NewClaim] = field(default_factory=list)
    pending: list[NewClaim] = field(default_factory=list)
    reported: list[NewReported] = field(default_factory=list)
    skips: list[NewSkip] = field(default_factory=list)
    plans: list[Advance] = field(default_factory=list)
    replaced: list[ExecutionKey] = field(default_factory=list)
    parked: list[tuple[ScopeKey, str]] = field(default_factory=list)
    broken: list[BrokenJob] = field(default_factory=list)
    excluded_jobs: set[str] = field(default_factory=set)
    no_runner: set[JobOnHost] = field(default_factory=set)
    delegated: set[str] = field(default_factory=set)
    slotless: int = 0

    @property
    def writes(self) -> bool:
        """Return whether the claim changes any row. Every planned schedule is in `plans`."""
        return bool(self.plans)

    @property
    def moved(self) -> list[ScopeKey]:
        """The scopes whose cursor may have moved without a start, which may open gates."""
        return [
            one.row.key
            for one in self.plans
            if one.plan.skips or one.plan.reported or one.row.woken
        ]


def decide(inputs: ClaimInputs, abilities: Abilities, slots: int) -> ClaimDecision:
    """Return what a claim with `slots` free slots writes for the schedules that it has locked."""
    decider = _Decider(inputs, abilities, slots)
    for row in inputs.schedules:
        decider.decide(row)
    return decider.decision


class _Decider:
    """Decides the schedules in order, and tracks the slots and limits that are left."""

    def __init__(self, inputs: ClaimInputs, abilities: Abilities, slots: int) -> None:
        self._inputs = inputs
        self._abilities = abilities
        self._slots = slots
        self._job_room = {
            name: facts.room for name, facts in inputs.jobs.items() if facts.room is not None
        }
        self._queue_room = dict(inputs.queue_room)
        step = max(1, min(STEP, MAX_PLAN_TIMES // max(1, len(inputs.schedules))))
        self._plans = SharedPlans(step)
        self._tokens = fresh_tokens()
        self.decision = ClaimDecision()

    def decide(self, row: ScheduleRow) -> None:
        facts = self._inputs.jobs.get(row.key.job_name)
        if row.ahead_of is not None and not self._may_start_ahead(row, facts):
            return
        revisions = self._inputs.revisions.since(row.key.job_name, row.planned_revision)
        if not revisions:
            self._park(row, Parked.RETIRED)
        elif facts is not None and self._stays_due(row, facts):
            return
        elif facts is not None and (error := self._spec_error(facts)) is not None:
            self._park(row, Parked.SPEC_ERROR, facts, error)
        else:
            self._plan(row, facts, revisions)

    def _may_start_ahead(self, row: ScheduleRow, facts: JobFacts | None) -> bool:
        """Return whether what is decided now is also right at the instant at which the row is due.

        The lock of the schedule keeps everything as it is, except for limits and for executions
        that end until then. The claim at that instant decides the other rows.
        """
        if facts is None or facts.handler in RUN_BY_OTHERS or row.reports:
            return False
        if self._inputs.revisions.newest(facts.name).job.gates:
            return False
        if facts.room is not None or row.queue in self._queue_room:
            return False
        return row.key not in self._inputs.running

    def _stays_due(self, row: ScheduleRow, facts: JobFacts) -> bool:
        """Return whether the row stays due, for a later claim or for another runner."""
        if self._is_locked_elsewhere(facts, row.queue):
            return True
        if facts.retired_at is not None or self._inputs.revisions.broken(facts.name) is not None:
            return False
        job = self._inputs.revisions.newest(facts.name).job
        if row.key.scope_kind != HOST and self._abilities.peers.delegates(job, row):
            self.decision.delegated.add(facts.name)
            return True
        if self._lacks_slot(row, job) and facts.paused_at is None:
            self.decision.slotless += 1
            return True
        return False

    def _is_locked_elsewhere(self, facts: JobFacts, queue: str) -> bool:
        """Return whether another transaction has locked the row of the limited job or queue."""
        inputs = self._inputs
        job_is = facts.room is not None and facts.name not in inputs.locked_jobs
        return job_is or (queue in inputs.queue_room and queue not in inputs.locked_queues)

    def _lacks_slot(self, row: ScheduleRow, job: Job) -> bool:
        """Return whether schedules before this one took the last slot and this one needs a slot.

        Such a schedule is not planned. Otherwise each claim would plan a large backlog again for
        the few schedules that get a slot. If existing executions took all slots, the schedule is
        planned nevertheless, so that its missed plan_times are recorded. A woken schedule is
        planned once. If it needs a slot, it is due from then on.
        """
        taken = self._slots <= 0 and bool(self.decision.new) and not row.woken
        blocked = row.key in self._inputs.running and job.overlap is not Overlap.ALLOW
        slotless = job.handler in RUN_BY_OTHERS or job.gates
        return taken and not slotless and not blocked

    def _spec_error(self, facts: JobFacts) -> str | None:
        if facts.retired_at is not None:
            return None
        return self._inputs.revisions.broken(facts.name) or self._abilities.refusal(facts)

    def _plan(self, row: ScheduleRow, facts: JobFacts | None, revisions: list[Revision]) -> None:
        """Settle the due plan_times of the row, and add the executions that start."""
        external = facts is not None and facts.handler == Handler.EXTERNAL
        blocker = self._first_running(row.key)
        room = self._room(row)
        if external:
            room = Room(UNCLAIMED_STEP, None, None)  # the limits apply when a worker claims
            if blocker is None:
                blocker, revisions = self._behind_unclaimed(row.key, revisions)
        elif all(revision.job.gates for revision in revisions):
            room = Room(UNCLAIMED_STEP, None, None)  # the limits apply when the gate has opened
            revisions = _waiting_beside(revisions)
        try:
            now = row.ahead_of or self._inputs.now
            if not self._abilities.reaches(row.key):
                now -= min(revisions[-1].job.grace + TICK, now - row.planned_through)
            planned = self._plans.plan(
                row, revisions, now, blocker=blocker, room=room, earlier=self._earlier(row),
                away=self._is_away(row),
            )  # fmt: skip
        except Exception as bug:  # a fault of one job must not stop the others
            log.exception("planner_crashed", job=row.key.job_name, scope=row.key.scope_id)
            error = f"the planner failed: {type(bug).__name__}: {bug}"
            self._park(row, Parked.SPEC_ERROR, facts, error)
            return
        if row.ahead_of is not None and (planned.skips or not planned.runs):
            return
        if planned.runs and not self._abilities.reaches(row.key):
            self._leave_to_its_host(row, planned)
            return
        if planned.runs and facts is not None and not self._abilities.plans(facts):
            self._leave_to_others(row, facts, planned)
            return
        self._settle(row, planned, facts, planned.spec_error)
        for run in planned.runs:
            claim = self._new_claim(row, run)
            self._add(claim, waits=external or claim.gated)

    def _is_away(self, row: ScheduleRow) -> bool:
        """Return whether the row is that of another host, which is absent now."""
        absent = bool(row.absences) and row.absences[-1].until_at >= self._inputs.now
        return absent and not self._abilities.reaches(row.key)

    def _earlier(self, row: ScheduleRow) -> dict[int, Revision]:
        """Return the revisions that the reports of the row may belong to."""
        parts = (part for report in row.reports for part in report.unreported)
        wanted = {part.revision for part in parts}
        if not wanted:
            return {}
        known = self._inputs.revisions.since(row.key.job_name, min(wanted))
        return {one.revision: one for one in known if one.revision in wanted}

    def _first_running(self, scope: ScopeKey) -> int | None:
        running = self._inputs.running.get(scope)
        return running[0].id if running else None

    def _room(self, row: ScheduleRow) -> Room:
        job, queue = self._job_room.get(row.key.job_name), self._queue_room.get(row.queue)
        return Room(self._slots, job, queue)

    def _behind_unclaimed(
        self, scope: ScopeKey, revisions: list[Revision]
    ) -> tuple[int | None, list[Revision]]:
        """Make a firing that no worker has claimed yet block the later ones.

        The later firings become skips with reason `overlap`. So workers that were away for a day
        find one execution instead of a day's backlog. Jobs that want every firing are the
        exception: `allow`, and `wait` with `catch_up = all`.
        """
        waiting, newest = self._inputs.unclaimed.get(scope), revisions[-1]
        job = newest.job
        wants_all = job.overlap is Overlap.WAIT and job.catch_up is CatchUp.ALL
        if waiting is None or job.overlap is Overlap.ALLOW or wants_all:
            return None, revisions
        job = job.model_copy(update={"overlap": Overlap.SKIP})
        return waiting, [*revisions[:-1], replace(newest, job=job)]

    def _leave_to_its_host(self, row: ScheduleRow, planned: Plan) -> None:
        """Make the row due for replicas of its host, which is present."""
        first, due_at = planned.first_settled, planned.runs[0].due_at
        due = Plan(row.planned_through, row.planned_revision, first, due_at, None)
        self._settle(row, due, None, None)

    def _leave_to_others(self, row: ScheduleRow, facts: JobFacts, planned: Plan) -> None:
        """Leave the row to a live runner that can run the job. Park the row if there is none.

        For the schedule of a host, only runners of this host count, because no other runner starts
        its executions.
        """
        if row.key.on_host in self._inputs.runnable:
            self.decision.excluded_jobs.add(facts.name)
            return
        self.decision.no_runner.add(row.key.on_host)
        parked = replace(row, next_plan_time=planned.first_settled)
        self._park(parked, Parked.NO_RUNNER, facts)

    def _park(
        self,
        row: ScheduleRow,
        why: Parked,
        facts: JobFacts | None = None,
        error: str | None = None,
    ) -> None:
        """Take the row out of the due index without settling any plan_time."""
        parked = Plan(row.planned_through, row.planned_revision, row.next_plan_time, None, why)
        self._settle(row, parked, facts, error)

    def _settle(
        self, row: ScheduleRow, planned: Plan, facts: JobFacts | None, error: str | None
    ) -> None:
        decision = self.decision
        decision.plans.append(Advance(row, planned, self._running_from(row.key, planned)))
        decision.skips.extend(
            NewSkip(row.key, skip, index == 0) for index, skip in enumerate(planned.skips)
        )
        decision.reported.extend(
            NewReported(
                one.report, one.plan_time, one.exact, one.trigger, one.revision.revision, row.queue
            )
            for one in planned.reported
        )
        if planned.replaces:
            running = self._inputs.running[row.key]
            decision.replaced.extend(ExecutionKey(*row.key, one.plan_time) for one in running)
        if planned.parked in (Parked.WAITING, Parked.LIMIT):
            decision.parked.append((row.key, row.queue))
        if facts is not None and error is not None and facts.spec_error != error:
            broken = BrokenJob(facts.name, facts.revision, error)
            if broken not in decision.broken:
                decision.broken.append(broken)

    def _running_from(self, scope: ScopeKey, planned: Plan) -> datetime:
        """Return the first plan_time of the scope that may be RUNNING after this claim."""
        running = (one.plan_time for one in self._inputs.running.get(scope, ()))
        starting = (run.plan_time for run in planned.runs)
        reported = (one.plan_time for one in planned.reported)
        return min([planned.planned_through, *running, *starting, *reported])

    def _new_claim(self, row: ScheduleRow, run: Run) -> NewClaim:
        revisions, number = self._inputs.revisions, run.revision.revision
        current = revisions.newest(row.key.job_name).job
        # The current queue, also for a plan_time of an earlier revision: its room was counted.
        return NewClaim(
            ExecutionKey(*row.key, run.plan_time), number, row.queue, run.due_at,
            revisions.payload(row.key.job_name, number), run.revision.job.max_attempts,
            next(self._tokens), current.stale_timeout, row.input_watermark, row.window_start,
            bool(run.revision.job.gates),
        )  # fmt: skip

    def _add(self, claim: NewClaim, *, waits: bool) -> None:
        if waits:
            self.decision.pending.append(claim)
            return
        self._slots -= 1
        self._take_room(claim.key.job_name, claim.queue)
        self.decision.new.append(claim)

    def _take_room(self, job: str, queue: str) -> None:
        if job in self._job_room:
            self._job_room[job] -= 1
        if queue in self._queue_room:
            self._queue_room[queue] -= 1


def _waiting_beside(revisions: list[Revision]) -> list[Revision]:
    """Let executions that wait for other jobs exist beside a RUNNING one, unless overlap is `skip`.

    Whether they may start beside it is decided when their gate has opened.
    """
    newest = revisions[-1]
    if newest.job.overlap is Overlap.SKIP:
        return revisions
    job = newest.job.model_copy(update={"overlap": Overlap.ALLOW})
    return [*revisions[:-1], replace(newest, job=job)]

"""Rows as values: what statements take as array elements, and what they return."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from cronledger.rules.deadline_plan import Scope
from cronledger.rules.gates import Missing, SkippedUpstream, Upstream, UpstreamExecution, Verdict
from cronledger.rules.model import ExecutionKey, ScopeKey
from cronledger.rules.plans import Plan, Retirement, ScheduleRow, Skip


class NewClaim(NamedTuple):
    """One element of `try_claim_new`; `payload` is JSON text."""

    key: ExecutionKey
    revision: int
    queue: str
    due_at: datetime
    payload: str | None
    max_attempts: int
    token: UUID
    stale_timeout: timedelta
    watermark: int | None
    window_start: datetime | None = None
    gated: bool = False


class Started(NamedTuple):
    """An execution that `try_claim_new` has inserted."""

    token: UUID
    id: int
    started_at: datetime


class NewReported(NamedTuple):
    """One element of `record_reports`."""

    report: int
    plan_time: datetime
    exact: bool
    trigger: str
    revision: int
    queue: str


class WaitingGate(NamedTuple):
    """A locked gate that is due to be checked, and its execution.

    `upstream`, `upstream_plan_time`: what the last check found missing; None: there was none.
    `now`: the database's time after the locks.
    """

    key: ExecutionKey
    upstream: ScopeKey | None
    upstream_plan_time: datetime | None
    revision: int
    due_at: datetime
    gated_at: datetime
    waits_until: datetime | None
    now: datetime

    @property
    def nominal(self) -> datetime:
        """The plan_time, without the microseconds of a backfill that repeats a SUCCESS."""
        return self.key.plan_time.replace(microsecond=0)


class GateVerdict(NamedTuple):
    """One element of `settle_gates`. `check_at`: when to check again; None: after a change."""

    key: ExecutionKey
    verdict: Verdict
    after: datetime
    until: datetime | None
    missing: Missing | None
    check_at: datetime | None


class UpstreamRow(NamedTuple):
    """A row of `read_upstreams`."""

    planned: bool | None
    woken: bool | None
    parked: str | None
    gone: bool
    plan_time: datetime | None
    status: str
    error_code: str | None
    finished_at: datetime | None
    again: bool
    skips: Sequence[Sequence[Any]] | None
    backfilled: Sequence[datetime] | None

    def of(self, scope: ScopeKey) -> Upstream:
        """Return the row as the state of this scope."""
        unfinished = None
        if self.plan_time is not None:
            unfinished = UpstreamExecution(
                self.plan_time, self.status, self.error_code, self.finished_at, self.again
            )
        skips = [
            SkippedUpstream(datetime.fromisoformat(first), datetime.fromisoformat(last), *rest)
            for first, last, *rest in self.skips or ()
        ]
        backfilled = frozenset(self.backfilled or ())
        return Upstream(
            scope, bool(self.planned), bool(self.woken), self.parked, self.gone, unfinished, skips,
            backfilled,
        )  # fmt: skip


class Waiting(NamedTuple):
    """Whether any execution is PENDING or awaits a retry, and whether a gate is due."""

    executions: bool
    gates: bool


class Advance(NamedTuple):
    """One element of `advance_schedules`. `running_from`: no execution of the schedule with an
    earlier plan_time is RUNNING."""

    row: ScheduleRow
    plan: Plan
    running_from: datetime


class NewSkip(NamedTuple):
    """One element of `record_skips`. `first`: of its schedule in this claim, so that it may extend
    a stored one."""

    scope: ScopeKey
    skip: Skip
    first: bool


class Enqueuer(NamedTuple):
    """The span that enqueued an execution."""

    execution_id: int
    traceparent: str


class AlertsRaised(NamedTuple):
    """The result of one step of the alerts.

    `more`: changes are left; None: another process observes them. `deliver`: a delivery is due.
    """

    more: bool | None
    deliver: bool


class Delivery(NamedTuple):
    """A delivery of alerts that this runner has claimed.

    `settings`: those of its channel; None: the channel does not exist. `expired`: it is a test that
    is not sent any more.
    """

    id: int
    channel: str
    attempt: int
    max_attempts: int
    token: UUID
    claimed_at: datetime
    settings: dict[str, Any] | None
    expired: bool
    message: dict[str, Any]


class DeliveryEnd(NamedTuple):
    """How a delivery has ended. `code`: the error; None: the channel has accepted the message."""

    id: int
    token: UUID
    code: str | None = None
    message: str | None = None
    final: bool = False


class BrokenJob(NamedTuple):
    """A job that cannot run in this revision, and the error. One element of `set_spec_errors`."""

    name: str
    revision: int
    error: str


class HostChanges(NamedTuple):
    """Scopes that appeared, returned and retired, and schedules of absent hosts to plan."""

    appeared: int
    returned: int
    retired: int
    absent: int


class Unblocked(NamedTuple):
    """A schedule that no longer waits. `rearmed`: it is due again; otherwise it was locked."""

    scope: ScopeKey
    queue: str
    rearmed: bool


class UnclaimedExecution(NamedTuple):
    """The first PENDING execution of an external job's schedule."""

    scope: ScopeKey
    id: int


class LeaseKey(NamedTuple):
    """The key and the token with which a statement finds a lease."""

    key: ExecutionKey
    token: UUID
    stale_timeout: timedelta


class OutputChunk(NamedTuple):
    """One element of `write_output`: a chunk of the output of an attempt.

    `gap_text` replaces the chunks from `gap_from` to `gap_through`; None: nothing is replaced.
    """

    key: ExecutionKey
    token: UUID
    number: int
    text: str
    gap_from: int | None
    gap_through: int | None
    gap_text: str | None


class Ending(NamedTuple):
    """One element of `finish_executions`; `result` is JSON text.

    `covers`: `watermark` takes the place of the one that the claim took. `trace_id`: of the
    attempt; None: it is not traced. `has_window`: a SUCCESS is recorded in `windows`.
    """

    key: ExecutionKey
    token: UUID
    status: str
    result: str | None
    rows_affected: int | None
    output: str | None
    error_code: str | None
    error_msg: str | None
    duration_ms: int
    retry_after: timedelta | None
    watermark: int | None = None
    covers: bool = False
    trace_id: str | None = None
    has_window: bool = False


class Postponement(NamedTuple):
    """One element of `postpone_executions`: the next attempt is due after `wait`."""

    key: ExecutionKey
    token: UUID
    wait: timedelta
    message: str | None
    duration_ms: int


class Renewed(NamedTuple):
    """A lease that a heartbeat has extended, and whether its execution is requested to cancel."""

    token: UUID
    cancel_requested: bool


class Finished(NamedTuple):
    """An outcome that was written, and the status of its execution now.

    `has_input`: its scope has watermark input to settle.
    """

    token: UUID
    status: str
    has_input: bool


class LeaseState(NamedTuple):
    """The state of an execution.

    `error_code`: of the attempt with the token of the lease, which may be an earlier one. `ours`:
    the row still has this token.
    """

    token: UUID
    status: str
    error_code: str | None
    ours: bool
    cancel_requested: bool


class Swept(NamedTuple):
    """An execution that the sweeper ended. `ping`: see `Job`."""

    key: ExecutionKey
    id: int
    status: str
    runner_id: str
    queue: str
    attempt: int
    ping: str | None


class ScopeChanges(NamedTuple):
    """How many scopes of a job appeared, returned and retired."""

    appeared: int
    returned: int
    retired: int


class MaintainedPartition(NamedTuple):
    """A partition, or another subject, and what was done with it."""

    action: str
    subject: str


class RedactedOutputs(NamedTuple):
    """The number of executions that were redacted, and whether more may be left."""

    redacted: int
    unfinished: bool


class NextDue(NamedTuple):
    """`now` and the next instants at which a runner has to look again."""

    now: datetime
    due: datetime | None
    again: datetime | None


class DeadlineTurn(NamedTuple):
    """A job whose deadlines have to be computed, and its cursor. The first row is of no job: ''.

    `upto`, `after_kind`, `after_id` and `following`: the pass over its scopes that is under way.
    """

    job: str
    through: datetime
    now: datetime
    upto: datetime | None
    after_kind: str | None
    after_id: str | None
    following: datetime | None


class ManualDeadline(NamedTuple):
    """A manual execution whose deadlines are to be computed."""

    scope: ScopeKey
    plan_time: datetime
    revision: int
    created_at: datetime


class CheckInReply(NamedTuple):
    """`now`, the earliest stale_after of all leases, the earliest end of a pause.

    `due`: when the runner has to claim. `refused`: why this is not the ledger's own database.
    `left_behind`: what the sweeper has to repair, see `sweeper.REPAIRS`; None: not examined.
    `gates`, `deadline`: when a gate has to be checked, and a deadline judged.
    `others`: live runners of the same queues whose tzdata or croniter differ, as of their last
    check-in. `alerts`: whether a job has rules for alerts. `namesake`: the other process that
    checked in under the same name before, while that check-in counts.
    """

    now: datetime
    stale: datetime | None
    resumes: datetime | None
    due: datetime | None
    refused: str | None
    left_behind: list[str] | None
    gates: datetime | None
    deadline: datetime | None
    others: list[dict[str, Any]] | None
    alerts: bool
    namesake: str | None

    @property
    def next_end(self) -> datetime | None:
        """The earliest end of a lease or of a pause."""
        return min((x for x in (self.stale, self.resumes) if x is not None), default=None)


def unblocked(job: str, kind: str, scope: str, queue: str, rearmed: bool) -> Unblocked:
    return Unblocked(ScopeKey(job, kind, scope), queue, rearmed)


def deadline_scope(  # noqa: PLR0917
    job: str, kind: str, scope: str, created_at: datetime,
    retired: Sequence[datetime] | None, returned: Sequence[datetime | None] | None,
) -> Scope:  # fmt: skip
    return Scope(ScopeKey(job, kind, scope), created_at, retirements(retired, returned))


def retirements(
    retired: Sequence[datetime] | None, returned: Sequence[datetime | None] | None
) -> tuple[Retirement, ...]:
    """Return the retirements of two arrays; NULL: none."""
    return tuple(map(Retirement, retired or (), returned or ()))


def manual_deadline(job: str, kind: str, scope: str, *rest: Any) -> ManualDeadline:
    return ManualDeadline(ScopeKey(job, kind, scope), *rest)


def unclaimed(job: str, kind: str, scope: str, id: int) -> UnclaimedExecution:
    return UnclaimedExecution(ScopeKey(job, kind, scope), id)


def waiting_gate(  # noqa: PLR0917
    job: str, kind: str, scope: str, plan: datetime, upstream_job: str | None,
    upstream_kind: str, upstream_id: str, *rest: Any,
) -> WaitingGate:  # fmt: skip
    upstream = None
    if upstream_job is not None:
        upstream = ScopeKey(upstream_job, upstream_kind, upstream_id)
    return WaitingGate(ExecutionKey(job, kind, scope, plan), upstream, *rest)


def swept(job: str, kind: str, scope: str, plan: datetime, *rest: Any) -> Swept:
    return Swept(ExecutionKey(job, kind, scope, plan), *rest)

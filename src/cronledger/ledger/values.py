"""Executions and skips as values for programs. They contain no lease token and no payload."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from cronledger.ledger.reports import Row
from cronledger.rules.model import ScopeKey, SkipReason, Status, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """An execution, with the columns of the view `execution_status`. Instants are in UTC.

    `id`: the number that commands and functions take. `attempt`: the number of claims, 0 before the
    first. `next_attempt_at`: when it is due, or is retried; None: never. `result`: the returned
    value as JSON has it. `error_code`: why the last attempt failed, in one word. `requested_by`:
    None for the schedule. `owner`, `labels`: those that the job has now; None: it has none.
    `progress_done` of `progress_total` units of work, and `progress_text`: what the last attempt
    has reported at `progress_at`; None: nothing, or it succeeded.
    """

    id: int
    job: str
    scope_kind: str
    scope_id: str
    plan_time: datetime
    status: Status
    trigger: Trigger
    revision: int
    queue: str
    due_at: datetime
    group_id: UUID | None
    attempt: int
    max_attempts: int
    next_attempt_at: datetime | None
    runner_id: str | None
    started_at: datetime | None
    finished_at: datetime | None
    duration_ms: int | None
    watermark: int | None
    rows_affected: int | None
    result: Any
    error_code: str | None
    error_msg: str | None
    cancel_requested_at: datetime | None
    requested_by: str | None
    created_at: datetime
    owner: str | None
    labels: Mapping[str, str] | None
    progress_done: int | None
    progress_total: int | None
    progress_text: str | None
    progress_at: datetime | None

    @property
    def scope(self) -> ScopeKey:
        """The (job, scope) of the execution."""
        return ScopeKey(self.job, self.scope_kind, self.scope_id)

    @property
    def ended(self) -> bool:
        """Return whether it has ended and is not retried automatically."""
        waits = self.status in (Status.PENDING, Status.RUNNING)
        return not waits and self.next_attempt_at is None

    @property
    def succeeded(self) -> bool:
        """Return whether it has ended as SUCCESS."""
        return self.status is Status.SUCCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRange:
    """A skip: `count` plan_times of a scope that did not run, for one reason. Instants are in UTC.

    `blocked_by`: with the reason `overlap`, the id of the execution that was RUNNING. `revision`:
    the revision of the job to which the plan_times belong. `created_at`: when the range began.
    `owner`, `labels`: those that the job has now; None: it has none.
    """

    job: str
    scope_kind: str
    scope_id: str
    from_plan_time: datetime
    through_plan_time: datetime
    count: int
    reason: SkipReason
    blocked_by: int | None
    revision: int
    created_at: datetime
    owner: str | None
    labels: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyResult:
    """What became of one execution of `retry_many` or `cancel_many`. `detail`: why it was left."""

    execution_id: int
    result: str
    detail: str | None

    @property
    def changed(self) -> bool:
        """Return whether the action has changed the execution, or would change it."""
        return self.result in ("retried", "brought_forward", "cancelled", "requested")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPause:
    """A pause of jobs. Instants are in UTC.

    `state`: `planned`, `in force`, `ended`, or `withdrawn` (before it began). `job`, `queue`,
    `owner`, `labels`: what it selects; None does not restrict. `jobs`: how many jobs that are now.
    `until_at`: None: it lasts until it is ended.
    """

    id: int
    state: str
    job: str | None
    queue: str | None
    owner: str | None
    labels: Mapping[str, str] | None
    from_at: datetime
    until_at: datetime | None
    reason: str | None
    requested_by: str
    created_at: datetime
    begun_at: datetime | None
    ended_at: datetime | None
    ended_by: str | None
    jobs: int


def execution(row: Row) -> Execution:
    """Return a row of `execution_status` as a value."""
    values = _values(row, Execution)
    values |= {"status": Status(row["status"]), "trigger": Trigger(row["trigger"])}
    return Execution(**values)


def skipped_range(row: Row) -> SkippedRange:
    """Return a row of `verify_skips` as a value."""
    return SkippedRange(**_values(row, SkippedRange) | {"reason": SkipReason(row["reason"])})


def planned_pause(row: Row) -> PlannedPause:
    """Return a row of `list_pauses` as a value."""
    return PlannedPause(**_values(row, PlannedPause))


def _values(row: Row, kind: type[Execution | SkippedRange | PlannedPause]) -> dict[str, Any]:
    columns = {"job": "job_name"}
    found = {field.name: row[columns.get(field.name, field.name)] for field in fields(kind)}
    return {name: _utc(value) for name, value in found.items()}


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value

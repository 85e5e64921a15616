"""What a claim reads before it decides, and the executions that it has won."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from cronledger.ledger.rows import NewClaim, Started
from cronledger.rules.model import ExecutionKey, ScopeKey, Trigger, Window
from cronledger.rules.plans import (
    Absence,
    Boot,
    PlannedSkip,
    Report,
    Retirement,
    ScheduleRow,
    Unreported,
)


class JobFacts(NamedTuple):
    """A job as a claim reads it.

    `room`: None without max_running. `revision_id`: the id of the newest revision; None: its row is
    missing. `on`: the labels that its runners must have.
    """

    name: str
    revision: int
    revision_id: UUID | None
    retired_at: datetime | None
    paused_at: datetime | None
    paused_until: datetime | None
    handler: str
    function: str | None
    from_sql: bool
    spec_error: str | None
    room: int | None
    on: Sequence[str] = ()


class UnreadablePayload(NamedTuple):
    """Replaces a payload that jsonb can hold and Python cannot read, such as 1e5000."""

    error: str


class Claimed(NamedTuple):
    """An execution that was won, retried or stolen (`how`).

    `window_start`: the start of its window, which ends at its plan_time; None: it has none.
    """

    key: ExecutionKey
    queue: str
    id: int
    token: UUID
    attempt: int
    max_attempts: int
    trigger: str
    payload: Any
    revision: int
    started_at: datetime
    how: str
    window_start: datetime | None = None

    @property
    def window(self) -> Window | None:
        start = self.window_start
        return None if start is None else Window(start, self.key.plan_time)


class DueExecution(NamedTuple):
    """An execution that `claim_due` claimed, or could not claim.

    `refused`: the error if the database does not accept one of the row's values. Such a row is not
    claimed.
    """

    claimed: Claimed
    refused: str | None


class RunningExecution(NamedTuple):
    """A RUNNING execution of a scope."""

    scope: ScopeKey
    plan_time: datetime
    id: int


class ClaimLook(NamedTuple):
    """What a claim has claimed, locked and read before it decides.

    `since`, `now`: the database's time before and after. `existing`: the executions that existed.
    `schedules`: those to plan, which are locked; if the first one has `ahead_of`, all have it.
    `locked_queues`, `locked_jobs`: the limited ones whose row is locked. `jobs`: of `existing` and
    `schedules`, by name. `queue_room`: how many more executions of each limited queue may start.
    `running`: the RUNNING executions of the scopes of `schedules`. Everything after `schedules` is
    empty if both lists are. `pauses`: due, a planned pause has to begin before a claim;
    unsettled, jobs were left out until their pauses are applied. `pause_at`: when the next planned
    pause begins. `more`: `claim_due` has left executions that may be due, and changed others.
    """

    since: datetime
    existing: list[DueExecution]
    schedules: list[ScheduleRow]
    locked_queues: Sequence[str]
    locked_jobs: Sequence[str]
    jobs: dict[str, JobFacts]
    queue_room: dict[str, int]
    running: list[RunningExecution]
    now: datetime | None
    pauses: Literal["due", "unsettled"] | None
    pause_at: datetime | None
    more: bool


def claim_look(row: dict[str, Any]) -> ClaimLook:
    jobs = [_job_facts(job) for job in row["jobs"] or ()]
    gone = _retirements(row["retirements"] or ())
    windows = {
        ScopeKey(*key): datetime.fromisoformat(start) for *key, start in row["window_starts"] or ()
    }
    skips = _planned_skips(row["planned_skips"] or ())
    absent = _absences(row["absences"] or ())
    reports = _reports(row["reports"] or (), row["unreported"] or ())
    boots = _boots(row["boots"] or ())
    return ClaimLook(
        row["since"],
        [_due_execution(execution) for execution in row["existing"] or ()],
        [
            _schedule(schedule, gone, skips, windows, absent, reports, boots)
            for schedule in row["schedules"] or ()
        ],
        row["locked_queues"] or (),
        row["locked_jobs"] or (),
        {job.name: job for job in jobs},
        dict(row["queue_room"] or ()),
        [_running(execution) for execution in row["running"] or ()],
        row["now"],
        row["pauses"],
        row["pause_at"],
        bool(row["more"]),
    )


def _due_execution(values: Sequence[Any]) -> DueExecution:
    refused, *key, plan, queue, id, token, attempt, most = values[:10]
    trigger, payload, revision, started, how, window = values[10:]
    row = claimed(
        *key, datetime.fromisoformat(plan), queue, id, token and UUID(token), attempt, most,
        trigger, payload, revision, datetime.fromisoformat(started), how, _instant(window),
    )  # fmt: skip
    return DueExecution(row, refused)


def _retirements(rows: Sequence[Sequence[Any]]) -> dict[ScopeKey, list[Retirement]]:
    found: dict[ScopeKey, list[Retirement]] = {}
    for *key, retired, returned in rows:
        one = Retirement(datetime.fromisoformat(retired), _instant(returned))
        found.setdefault(ScopeKey(*key), []).append(one)
    return found


def _planned_skips(rows: Sequence[Sequence[Any]]) -> dict[ScopeKey, list[PlannedSkip]]:
    found: dict[ScopeKey, list[PlannedSkip]] = {}
    for *key, first, last, reason in rows:
        one = PlannedSkip(datetime.fromisoformat(first), datetime.fromisoformat(last), reason)
        found.setdefault(ScopeKey(*key), []).append(one)
    return found


def _absences(rows: Sequence[Sequence[Any]]) -> dict[ScopeKey, list[Absence]]:
    found: dict[ScopeKey, list[Absence]] = {}
    for *key, start, end in rows:
        one = Absence(datetime.fromisoformat(start), datetime.fromisoformat(end))
        found.setdefault(ScopeKey(*key), []).append(one)
    return found


def _boots(rows: Sequence[Sequence[Any]]) -> dict[ScopeKey, list[Boot]]:
    found: dict[ScopeKey, list[Boot]] = {}
    for *key, plan, booted, checked_in in rows:
        noticed_after = datetime.fromisoformat(checked_in) - datetime.fromisoformat(booted)
        boot = Boot(datetime.fromisoformat(plan), noticed_after)
        found.setdefault(ScopeKey(*key), []).append(boot)
    return found


def _reports(
    rows: Sequence[Sequence[Any]], unreported: Sequence[Sequence[Any]]
) -> dict[ScopeKey, list[Report]]:
    parts: dict[int, list[Unreported]] = {}
    for report, first, last, revision, taken in unreported:
        at = datetime.fromisoformat(first), datetime.fromisoformat(last)
        part = Unreported(*at, revision, frozenset(map(datetime.fromisoformat, taken)))
        parts.setdefault(report, []).append(part)
    found: dict[ScopeKey, list[Report]] = {}
    for *key, id, started in rows:
        one = Report(id, datetime.fromisoformat(started), parts.get(id, ()))
        found.setdefault(ScopeKey(*key), []).append(one)
    return found


def _schedule(  # noqa: PLR0917
    values: Sequence[Any],
    retirements: Mapping[ScopeKey, Sequence[Retirement]],
    planned_skips: Mapping[ScopeKey, Sequence[PlannedSkip]],
    windows: Mapping[ScopeKey, datetime],
    absences: Mapping[ScopeKey, Sequence[Absence]],
    reports: Mapping[ScopeKey, Sequence[Report]],
    boots: Mapping[ScopeKey, Sequence[Boot]],
) -> ScheduleRow:
    # The last retirement alone, in two columns, is for replicas of earlier versions.
    *names, queue, through, revision, plan, _, _, woken, ahead_of, address, watermark = values
    key = ScopeKey(*names)
    return ScheduleRow(
        key, queue, datetime.fromisoformat(through), revision, _instant(plan),
        retirements.get(key, ()), planned_skips.get(key, ()), woken, _instant(ahead_of), address,
        watermark,
        windows.get(key),
        absences.get(key, ()),
        reports.get(key, ()),
        boots.get(key, ()),
    )  # fmt: skip


def _job_facts(values: Sequence[Any]) -> JobFacts:
    name, revision, id, retired, paused, until, *rest = values
    rest[-1] = rest[-1] or ()  # on
    revision_id = None if id is None else UUID(id)
    return JobFacts(
        name, revision, revision_id, _instant(retired), _instant(paused), _instant(until), *rest
    )


def _running(values: Sequence[Any]) -> RunningExecution:
    *key, plan, id = values
    return RunningExecution(ScopeKey(*key), datetime.fromisoformat(plan), id)


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def claimed(job: str, kind: str, scope: str, plan: datetime, *rest: Any) -> Claimed:
    row = Claimed(ExecutionKey(job, kind, scope, plan), *rest)
    return row if row.payload is None else row._replace(payload=_payload(row.payload))


def inserted(new: NewClaim, row: Started) -> Claimed:
    """Return the execution that was inserted for `new`."""
    payload = None if new.payload is None else _payload(new.payload)
    return Claimed(
        new.key, new.queue, row.id, row.token, 1, new.max_attempts, Trigger.SCHEDULE.value, payload,
        new.revision, row.started_at, "won", new.window_start,
    )  # fmt: skip


def _payload(text: str) -> Any:
    # What cannot be read must not cost the executions beside it their claim.
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return UnreadablePayload(f"the payload's JSON cannot be read: {error}")

"""One method for each file in `sql/` that a runner sends: arrays in, a cursor of rows out.

Every method sends its statement on the given connection and returns a cursor. In the transaction of
a step, statements are sent together when rows are fetched or the transaction ends. The head of each
file states what the statement guarantees, what it locks, and what zero rows mean. The methods raise
psycopg.Error.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast
from uuid import UUID

from psycopg.rows import args_row, dict_row, scalar_row, tuple_row
from psycopg.types.json import Jsonb

from cronledger.ledger.arrays import array, attribute_arrays, column_arrays
from cronledger.ledger.claim_rows import Claimed, ClaimLook, claim_look
from cronledger.ledger.connections import StepConnection, StepCursor
from cronledger.ledger.queries import run_async
from cronledger.ledger.rows import (
    Advance,
    AlertsRaised,
    BrokenJob,
    CheckInReply,
    DeadlineTurn,
    Delivery,
    DeliveryEnd,
    Ending,
    Enqueuer,
    Finished,
    GateVerdict,
    HostChanges,
    LeaseKey,
    LeaseState,
    MaintainedPartition,
    ManualDeadline,
    NewClaim,
    NewReported,
    NewSkip,
    NextDue,
    OutputChunk,
    Postponement,
    RedactedOutputs,
    Renewed,
    ScopeChanges,
    Started,
    Swept,
    Unblocked,
    UnclaimedExecution,
    UpstreamRow,
    Waiting,
    WaitingGate,
    deadline_scope,
    manual_deadline,
    swept,
    unblocked,
    unclaimed,
    waiting_gate,
)
from cronledger.ledger.server_settings import ServerSettings
from cronledger.rules.calendars import CalendarKey
from cronledger.rules.deadline_plan import DeadlinePlan, NewDeadline, Scope
from cronledger.rules.model import ExecutionKey, JobOnHost, ScopeKey
from cronledger.rules.progress import Progress

Connection = StepConnection
Rows = StepCursor[tuple[Any, ...]]
T = TypeVar("T")


def _scopes(keys: Sequence[ScopeKey]) -> dict[str, Any]:
    return column_arrays(keys, "jobs", "kinds", "scopes")


def _keys(keys: Sequence[ExecutionKey]) -> dict[str, Any]:
    # The bounds let the server open only the partitions that can hold the rows.
    columns = column_arrays(keys, "jobs", "kinds", "scopes", "plans")
    plans = [key.plan_time for key in keys]
    return {**columns, "first": min(plans), "last": max(plans)}


def _new_executions(claims: Sequence[NewClaim]) -> dict[str, Any]:
    keys = column_arrays([claim.key for claim in claims], "jobs", "kinds", "scopes", "plans")
    return keys | attribute_arrays(
        claims, revisions="revision", queues="queue", dues="due_at", payloads="payload",
        max_attempts="max_attempts",
    )  # fmt: skip


def _looks(cursor: Any) -> Callable[[Sequence[Any]], ClaimLook]:
    by_column = dict_row(cursor)
    return lambda values: claim_look(by_column(values))


SETTLED_SCHEDULES = 10_000
"""A transaction that applies pauses ends after so many schedules, which takes about 0.4 s. The next
transaction applies the others."""


class Statements:
    """The statements of one schema. Holds no connection and no state."""

    def __init__(self, schema: str = "cronledger") -> None:
        self.schema = schema

    async def _send(
        self, c: Connection, name: str, factory: Any, params: Mapping[str, Any]
    ) -> StepCursor[Any]:
        cursor = c.cursor(row_factory=factory)
        return cast("StepCursor[Any]", await run_async(cursor, name, self.schema, params))

    async def _rows(self, c: Connection, name: str, **params: Any) -> Rows:
        return await self._send(c, name, tuple_row, params)

    async def _made(
        self, c: Connection, name: str, make: Callable[..., T], **params: Any
    ) -> StepCursor[T]:
        return await self._send(c, name, args_row(make), params)

    async def _values(self, c: Connection, name: str, **params: Any) -> StepCursor[Any]:
        """Send a statement with one column. Its rows are the values of that column."""
        return await self._send(c, name, scalar_row, params)

    async def read_clock(self, c: Connection) -> StepCursor[datetime]:
        return await self._values(c, "read_clock")

    async def read_server_settings(self, c: Connection) -> StepCursor[ServerSettings]:
        return await self._made(c, "read_server_settings", ServerSettings)

    async def begin_in_ledger(self, c: Connection) -> StepCursor[UUID]:
        return await self._values(c, "begin_in_ledger")

    async def require_own_database(self, c: Connection) -> Rows:
        return await self._rows(c, "require_own_database")

    async def claim_look(
        self,
        c: Connection,
        runner: str,
        *,
        queues: Sequence[str],
        kinds: Sequence[str],
        functions: Sequence[str],
        labels: Sequence[str],
        tokens: str,
        trusted_since: datetime | None,
        sql_commands: bool,
        jobs_not_to_run: Sequence[str],
        max_rows: int,
        jobs_not_to_plan: Sequence[str],
        max_due: int,
        max_woken: int,
        ahead: timedelta,
        due_from: datetime | None,
    ) -> StepCursor[ClaimLook]:
        """`tokens`: an array literal; made once for many claims, most of which use none.

        `due_from`: of the schedules that were due before, only woken ones are found; None: all are.
        """
        params = {
            "runner": runner,
            "queues": array(queues),
            "kinds": array(kinds),
            "functions": array(functions),
            "labels": array(labels),
            "tokens": tokens,
            "trusted_since": trusted_since,
            "sql_commands": sql_commands,
            "jobs_not_to_run": array(jobs_not_to_run),
            "max_rows": max_rows,
            "jobs_not_to_plan": array(jobs_not_to_plan),
            "max_due": max_due,
            "max_woken": max_woken,
            "ahead": ahead,
            "due_from": due_from,
        }
        return await self._send(c, "claim_look", _looks, params)

    async def read_unclaimed(
        self, c: Connection, scopes: Sequence[ScopeKey]
    ) -> StepCursor[UnclaimedExecution]:
        return await self._made(c, "read_unclaimed", unclaimed, **_scopes(scopes))

    async def plan_pending(self, c: Connection, claims: Sequence[NewClaim]) -> Rows:
        """The tokens and leases of `claims` are not used."""
        gated = attribute_arrays(claims, gated="gated")
        return await self._rows(c, "plan_pending", **_new_executions(claims), **gated)

    async def record_reports(self, c: Connection, reported: Sequence[NewReported]) -> Rows:
        given = attribute_arrays(
            reported, reports="report", plans="plan_time", exact="exact", triggers="trigger",
            revisions="revision", queues="queue",
        )  # fmt: skip
        return await self._rows(c, "record_reports", **given)

    async def wake_gates(self, c: Connection, scopes: Sequence[ScopeKey]) -> Rows:
        return await self._rows(c, "wake_gates", **_scopes(scopes))

    async def wake_left_gates(self, c: Connection, max_rows: int) -> Rows:
        return await self._rows(c, "wake_left_gates", max_rows=max_rows)

    async def lock_gates(self, c: Connection, most: int) -> StepCursor[WaitingGate]:
        return await self._made(c, "lock_gates", waiting_gate, most=most)

    async def read_upstreams(
        self, c: Connection, asked: Sequence[tuple[ScopeKey, datetime, datetime]]
    ) -> StepCursor[UpstreamRow]:
        """`asked`: required scopes, each with its interval (after, through]."""
        afters, throughs = ([one[place] for one in asked] for place in (1, 2))
        params = {"afters": array(afters), "throughs": array(throughs)}
        scopes = _scopes([scope for scope, _, _ in asked])
        return await self._made(c, "read_upstreams", UpstreamRow, **scopes, **params)

    async def list_upstream_results(
        self, c: Connection, key: ExecutionKey, required: Sequence[ScopeKey]
    ) -> Rows:
        of = {"job": key.job_name, "kind": key.scope_kind, "scope": key.scope_id}
        plan = {"plan": key.plan_time}
        return await self._rows(c, "list_upstream_results", **_scopes(required), **of, **plan)

    async def settle_gates(self, c: Connection, verdicts: Sequence[GateVerdict]) -> Rows:
        keys = column_arrays([one.key for one in verdicts], "jobs", "kinds", "scopes", "plans")
        given = attribute_arrays(
            verdicts, verdicts="verdict", afters="after", untils="until", checks="check_at"
        )
        found = [one.missing for one in verdicts]
        upstreams = [(None, None, None) if one is None else one.scope for one in found]
        return await self._rows(
            c, "settle_gates", **keys, **given,
            **column_arrays(upstreams, "upstream_jobs", "upstream_kinds", "upstream_ids"),
            upstream_plans=array([one and one.plan_time for one in found]),
            missing=array([one and one.text for one in found]),
        )  # fmt: skip

    async def next_gate(self, c: Connection) -> StepCursor[datetime | None]:
        return await self._values(c, "next_gate")

    async def read_revisions(
        self, c: Connection, jobs: Sequence[str], revisions: Sequence[int]
    ) -> StepCursor[dict[str, Any]]:
        """`revisions`: the first revision of each job to return. The rows are dictionaries."""
        params = {"jobs": array(jobs), "revisions": array(revisions)}
        return await self._send(c, "read_revisions", dict_row, params)

    async def read_calendars(
        self, c: Connection, calendars: Collection[CalendarKey]
    ) -> StepCursor[dict[str, Any]]:
        """The rows are dictionaries, as `Calendar.from_row` reads them."""
        params = column_arrays(sorted(calendars), "names", "revisions")
        return await self._send(c, "read_calendars", dict_row, params)

    async def create_missing_partitions(
        self, c: Connection, plans: Sequence[datetime]
    ) -> StepCursor[str]:
        return await self._values(c, "create_missing_partitions", plans=array(plans))

    async def read_runnable_jobs(self, c: Connection, wanted: Sequence[JobOnHost]) -> Rows:
        return await self._rows(c, "read_runnable_jobs", **column_arrays(wanted, "jobs", "hosts"))

    async def sleep_until(self, c: Connection, at: datetime, at_most: timedelta) -> Rows:
        return await self._rows(c, "sleep_until", at=at, at_most=at_most)

    async def try_claim_new(
        self, c: Connection, runner: str, claims: Sequence[NewClaim], *, ahead: bool = False
    ) -> StepCursor[Started]:
        leases = attribute_arrays(
            claims, tokens="token", stale_timeouts="stale_timeout", watermarks="watermark"
        )
        starts = [claim.window_start for claim in claims]
        windows = array(starts) if any(starts) else None
        params = {
            "runner": runner, "ahead": ahead, "window_starts": windows, **_new_executions(claims),
            **leases,
        }  # fmt: skip
        return await self._made(c, "try_claim_new", Started, **params)

    async def record_skips(self, c: Connection, skips: Sequence[NewSkip]) -> Rows:
        ranges = attribute_arrays(
            [new.skip for new in skips], froms="from_plan_time", throughs="through_plan_time",
            counts="count", reasons="reason", details="detail", blockers="blocked_by",
            revisions="revision",
        )  # fmt: skip
        scopes = _scopes([new.scope for new in skips])
        first = array([new.first for new in skips])
        return await self._rows(c, "record_skips", **scopes, **ranges, first=first)

    async def advance_schedules(self, c: Connection, advances: Sequence[Advance]) -> Rows:
        states = attribute_arrays(
            [one.plan for one in advances], throughs="planned_through",
            revisions="planned_revision", next_plans="next_plan_time", next_dues="next_due_at",
            parked="parked",
        )  # fmt: skip
        rows = [one.row for one in advances]
        places = _scopes([row.key for row in rows]) | attribute_arrays(rows, addresses="address")
        running = attribute_arrays(advances, running_froms="running_from")
        return await self._rows(c, "advance_schedules", **places, **states, **running)

    async def request_replacement(self, c: Connection, keys: Sequence[ExecutionKey]) -> Rows:
        return await self._rows(c, "request_replacement", **_keys(keys))

    async def set_spec_errors(self, c: Connection, broken: Sequence[BrokenJob]) -> StepCursor[str]:
        """Return the names of the jobs whose spec_error was set."""
        params = attribute_arrays(broken, jobs="name", revisions="revision", errors="error")
        return await self._values(c, "set_spec_errors", **params)

    async def park_broken(self, c: Connection, scopes: Sequence[ScopeKey]) -> Rows:
        return await self._rows(c, "park_broken", **_scopes(scopes))

    async def next_due(
        self,
        c: Connection,
        *,
        queues: Sequence[str],
        labels: Sequence[str],
        excluded_jobs: Sequence[str],
        since: datetime,
        due_from: datetime | None,
    ) -> StepCursor[NextDue]:
        return await self._made(
            c,
            "next_due",
            NextDue,
            labels=array(labels),
            queues=array(queues),
            excluded_jobs=array(excluded_jobs),
            since=since,
            due_from=due_from,
        )

    async def check_in(self, c: Connection, **runner: Any) -> StepCursor[CheckInReply]:
        runner["fingerprint"] = Jsonb(runner["fingerprint"])
        return await self._made(c, "check_in", CheckInReply, **runner)

    async def take_name(self, c: Connection, **runner: Any) -> Rows:
        return await self._rows(c, "take_name", **runner)

    async def stop_runner(self, c: Connection, runner: str, ledger: UUID | None) -> Rows:
        return await self._rows(c, "stop_runner", runner=runner, ledger=ledger)

    async def heartbeat_leases(
        self,
        c: Connection,
        leases: Sequence[LeaseKey],
        progress: Sequence[Progress | None] = (),
    ) -> StepCursor[Renewed]:
        """`progress`: what each execution has reported and is not stored; empty: none of them."""
        rest: dict[str, Any] = attribute_arrays(
            leases, tokens="token", stale_timeouts="stale_timeout"
        )
        reports = [found or (None, None, None) for found in progress]
        columns = column_arrays(reports, "done", "total", "texts")
        rest |= columns if reports else dict.fromkeys(columns)
        keys = _keys([lease.key for lease in leases])
        return await self._made(c, "heartbeat_leases", Renewed, **keys, **rest)

    async def read_leases(
        self, c: Connection, keys: Sequence[ExecutionKey], tokens: Sequence[UUID]
    ) -> StepCursor[LeaseState]:
        return await self._made(c, "read_leases", LeaseState, **_keys(keys), tokens=array(tokens))

    async def read_traceparents(
        self, c: Connection, keys: Sequence[ExecutionKey]
    ) -> StepCursor[Enqueuer]:
        return await self._made(c, "read_traceparents", Enqueuer, **_keys(keys))

    async def finish_executions(
        self, c: Connection, endings: Sequence[Ending]
    ) -> StepCursor[Finished]:
        params = self.finish_parameters(endings)
        return await self._made(c, "finish_executions", Finished, **params)

    @staticmethod
    def finish_parameters(endings: Sequence[Ending]) -> dict[str, Any]:
        """Return the parameters of `finish_executions`, for connections that are not async too."""
        rest: dict[str, Any] = attribute_arrays(
            endings, tokens="token", statuses="status", results="result",
            rows_affected="rows_affected", outputs="output", error_codes="error_code",
            error_msgs="error_msg", durations_ms="duration_ms", retries_after="retry_after",
            watermarks="watermark", covers="covers",
        )  # fmt: skip
        traces = [ending.trace_id for ending in endings]
        rest["traces"] = array(traces) if any(traces) else None
        rest["with_windows"] = any(ending.has_window for ending in endings)
        return _keys([ending.key for ending in endings]) | rest

    async def write_output(self, c: Connection, chunks: Sequence[OutputChunk]) -> StepCursor[UUID]:
        rest = attribute_arrays(
            chunks, tokens="token", numbers="number", texts="text", gaps_from="gap_from",
            gaps_through="gap_through", gap_texts="gap_text",
        )  # fmt: skip
        keys = _keys([chunk.key for chunk in chunks])
        return await self._values(c, "write_output", **keys, **rest)

    async def drop_output(self, c: Connection, attempts: Sequence[Claimed]) -> Rows:
        """`attempts`: those whose chunks are deleted."""
        rest = attribute_arrays(attempts, ids="id", attempts="attempt")
        return await self._rows(c, "drop_output", **_keys([x.key for x in attempts]), **rest)

    async def release_executions(
        self,
        c: Connection,
        keys: Sequence[ExecutionKey],
        tokens: Sequence[UUID],
        error_code: str,
        error_msg: str,
    ) -> StepCursor[Finished]:
        return await self._made(
            c,
            "release_executions",
            Finished,
            **_keys(keys),
            tokens=array(tokens),
            error_code=error_code,
            error_msg=error_msg,
        )

    async def postpone_executions(
        self, c: Connection, postponed: Sequence[Postponement]
    ) -> StepCursor[Finished]:
        rest = attribute_arrays(
            postponed, tokens="token", waits="wait", messages="message", durations_ms="duration_ms"
        )
        keys = _keys([one.key for one in postponed])
        return await self._made(c, "postpone_executions", Finished, **keys, **rest)

    async def notify_ended(self, c: Connection, execution_ids: Sequence[int]) -> Rows:
        return await self._rows(c, "notify_ended", ids=list(execution_ids))

    async def has_waiting(self, c: Connection) -> StepCursor[Waiting]:
        return await self._made(c, "has_waiting", Waiting)

    async def lock_schedule(self, c: Connection, key: ScopeKey) -> Rows:
        job, kind, scope = key
        return await self._rows(c, "lock_schedule", job=job, kind=kind, scope=scope)

    async def rearm_unblocked(
        self, c: Connection, ended: Sequence[tuple[ScopeKey, str]]
    ) -> StepCursor[Unblocked]:
        """`ended`: (job, scope) and queue, once for each execution that ended."""
        scopes, queues = _scopes([key for key, _ in ended]), array([queue for _, queue in ended])
        return await self._made(c, "rearm_unblocked", unblocked, **scopes, queues=queues)

    async def settle_inputs(self, c: Connection, scopes: Sequence[ScopeKey]) -> Rows:
        return await self._rows(c, "settle_inputs", **_scopes(scopes))

    async def settle_left_behind(self, c: Connection) -> StepCursor[int]:
        return await self._values(c, "settle_left_behind")

    async def follow_hosts(self, c: Connection, retire_after: timedelta) -> StepCursor[HostChanges]:
        return await self._made(c, "follow_hosts", HostChanges, retire_after=retire_after)

    async def end_orphans(self, c: Connection) -> StepCursor[int]:
        return await self._values(c, "end_orphans")

    async def rearm_left_behind(self, c: Connection) -> Rows:
        return await self._rows(c, "rearm_left_behind")

    async def sweep_stale(self, c: Connection, trusted_since: datetime | None) -> StepCursor[Swept]:
        return await self._made(c, "sweep_stale", swept, trusted_since=trusted_since)

    async def resume_paused(self, c: Connection) -> StepCursor[str]:
        return await self._values(c, "resume_paused")

    async def begin_pauses(self, c: Connection) -> StepCursor[int]:
        return await self._values(c, "begin_pauses")

    async def settle_pauses(self, c: Connection) -> StepCursor[int]:
        return await self._values(c, "settle_pauses", most=SETTLED_SCHEDULES)

    async def reap_runners(self, c: Connection) -> Rows:
        return await self._rows(c, "reap_runners")

    async def maintain_partitions(
        self, c: Connection, width: timedelta
    ) -> StepCursor[MaintainedPartition]:
        return await self._made(c, "maintain_partitions", MaintainedPartition, width=width)

    async def mark_changed_hours(
        self, c: Connection, after: str, most: int
    ) -> StepCursor[str | None]:
        """`after`: the number of a transaction. The value is where the next call goes on."""
        return await self._values(c, "mark_changed_hours", after=after, most=most)

    async def roll_up_hours(self, c: Connection, most: int) -> StepCursor[int]:
        return await self._values(c, "roll_up_hours", most=most)

    async def prune_hours(self, c: Connection, most: int) -> StepCursor[int]:
        return await self._values(c, "prune_hours", most=most)

    async def redact_outputs(self, c: Connection, most: int) -> StepCursor[RedactedOutputs]:
        return await self._made(c, "redact_outputs", RedactedOutputs, most=most)

    async def raise_alerts(self, c: Connection, most: int) -> StepCursor[AlertsRaised]:
        return await self._made(c, "raise_alerts", AlertsRaised, most=most)

    async def claim_deliveries(
        self, c: Connection, runner: str, tokens: Sequence[UUID]
    ) -> StepCursor[Delivery]:
        params = {"runner": runner, "tokens": array(tokens)}
        return await self._made(c, "claim_deliveries", Delivery, **params)

    async def end_delivery(self, c: Connection, ended: DeliveryEnd) -> StepCursor[str]:
        return await self._values(c, "end_delivery", **ended._asdict())

    async def release_delivery(self, c: Connection, id_: int, token: UUID) -> StepCursor[None]:
        return await self._values(c, "release_delivery", id=id_, token=token)

    async def prune_alerts(self, c: Connection, most: int) -> StepCursor[int]:
        return await self._values(c, "prune_alerts", most=most)

    async def lock_deadlines(self, c: Connection, most: int) -> StepCursor[DeadlineTurn]:
        return await self._made(c, "lock_deadlines", DeadlineTurn, most=most)

    async def deadline_schedules(
        self, c: Connection, turns: Sequence[DeadlineTurn], most: int
    ) -> StepCursor[Scope]:
        given = attribute_arrays(
            turns, jobs="job", throughs="through", after_kinds="after_kind", after_ids="after_id"
        )
        return await self._made(c, "deadline_schedules", deadline_scope, **given, most=most)

    async def deadline_revisions(
        self,
        c: Connection,
        jobs: Sequence[str],
        since: Sequence[datetime | None],
        numbers: Sequence[int | None],
    ) -> StepCursor[dict[str, Any]]:
        """For each job, the revisions from `since` on, or the one with this number, as rows."""
        params = {"jobs": array(jobs), "since": array(since), "numbers": array(numbers)}
        return await self._send(c, "deadline_revisions", dict_row, params)

    async def take_manual_deadlines(self, c: Connection, most: int) -> StepCursor[ManualDeadline]:
        return await self._made(c, "take_manual_deadlines", manual_deadline, most=most)

    async def add_deadlines(self, c: Connection, added: Sequence[NewDeadline]) -> Rows:
        rest = attribute_arrays(
            added, plans="plan_time", policies="kind", revisions="revision", instants="instant",
            lengths="length", months="month", fractions="fraction", factors="factor",
        )  # fmt: skip
        scopes = _scopes([new.scope for new in added])
        return await self._rows(c, "add_deadlines", **scopes, **rest)

    async def advance_deadlines(self, c: Connection, plans: Mapping[str, DeadlinePlan]) -> Rows:
        going = {name: plan for name, plan in plans.items() if not plan.ended}
        after = [plan.after for plan in going.values()]
        return await self._rows(
            c,
            "advance_deadlines",
            jobs=array(list(going)),
            **attribute_arrays(
                list(going.values()), throughs="through", nexts="next_at", uptos="upto",
                followings="following",
            ),
            after_kinds=array([None if key is None else key.scope_kind for key in after]),
            after_ids=array([None if key is None else key.scope_id for key in after]),
            ended=array([name for name, plan in plans.items() if plan.ended]),
        )  # fmt: skip

    async def judge_deadlines(self, c: Connection, most: int) -> StepCursor[int]:
        return await self._values(c, "judge_deadlines", most=most)

    async def close_breaches(self, c: Connection, most: int) -> StepCursor[int]:
        return await self._values(c, "close_breaches", most=most)

    async def next_deadline(self, c: Connection) -> StepCursor[datetime | None]:
        return await self._values(c, "next_deadline")

    async def prune_breaches(self, c: Connection, most: int) -> StepCursor[int]:
        return await self._values(c, "prune_breaches", most=most)

    async def take_turn(self, c: Connection, step: str) -> StepCursor[bool | None]:
        return await self._values(c, "take_turn", step=step)

    async def add_turn(self, c: Connection, step: str) -> Rows:
        return await self._rows(c, "add_turn", step=step)

    async def record_scopes_asked(
        self, c: Connection, job: str, runner: str, error: str | None
    ) -> Rows:
        return await self._rows(c, "record_scopes_asked", job=job, runner=runner, error=error)

    async def compare_scopes(
        self, c: Connection, job: str, kind: str, digest: str
    ) -> StepCursor[bool]:
        return await self._values(c, "compare_scopes", job=job, kind=kind, digest=digest)

    async def set_scopes(
        self, c: Connection, job: str, kind: str, scopes: str
    ) -> StepCursor[ScopeChanges]:
        """`scopes`: an array literal, of 100,000 elements perhaps; made outside the event loop."""
        return await self._made(c, "set_scopes", ScopeChanges, job=job, kind=kind, scopes=scopes)

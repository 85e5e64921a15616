"""One method per file in `sql/`: arrays in, a cursor of rows out, no decisions.

Every method sends its statement on the given connection and answers a cursor; in a pipeline its rows
are there once they are fetched. What each guarantees, locks and means by zero rows stands at the
head of its file. Raises psycopg.Error.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import args_row, dict_row, tuple_row
from psycopg.types.json import Jsonb

from cronledger.rules.model import ExecutionKey, Plan, ScheduleRow, ScopeKey, Skip

Connection = AsyncConnection[tuple[Any, ...]]
Rows = AsyncCursor[tuple[Any, ...]]

MAX_STEALS = 3
"""A stale lease of a reentrant job is stolen while attempt < greatest(max_attempts, MAX_STEALS): a
job of one attempt survives a crash, and one that kills its runner does not kill them for ever."""


class DueAgain(NamedTuple):
    """An execution that exists and is due: PENDING, awaiting retry, or stale."""

    key: ExecutionKey
    id: int
    status: str


class JobFacts(NamedTuple):
    """What a claim reads of one job; `room`: None without max_running."""

    name: str
    revision: int
    retired_at: datetime | None
    paused_at: datetime | None
    paused_until: datetime | None
    handler: str
    function: str | None
    from_sql: bool
    spec_error: str | None
    room: int | None


class NewClaim(NamedTuple):
    """One element of `try_claim_new`."""

    key: ExecutionKey
    revision: int
    queue: str
    due_at: datetime
    payload: Any
    max_attempts: int
    token: UUID
    stale_timeout: timedelta


class AgainClaim(NamedTuple):
    """One element of `try_claim_again`."""

    key: ExecutionKey
    token: UUID
    stale_timeout: timedelta
    reentrant: bool


class Claimed(NamedTuple):
    """An execution that was won, retried or stolen (`how`)."""

    key: ExecutionKey
    id: int
    token: UUID
    attempt: int
    max_attempts: int
    trigger: str
    payload: Any
    revision: int
    started_at: datetime
    how: str


class LeaseKey(NamedTuple):
    """What a statement needs to find a lease."""

    key: ExecutionKey
    token: UUID
    stale_timeout: timedelta


class Ending(NamedTuple):
    """One element of `finish_executions`; `result` is JSON text."""

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


class LeaseState(NamedTuple):
    """What a lease became: `ours` says whether the row still bears the token."""

    token: UUID
    status: str
    ours: bool
    cancel_requested: bool


class Swept(NamedTuple):
    """An execution that the sweeper ended."""

    key: ExecutionKey
    id: int
    status: str
    runner_id: str
    queue: str


class NextDue(NamedTuple):
    """`now` and the next instants at which a runner has to look again."""

    now: datetime
    due: datetime | None
    again: datetime | None


class Pulse(NamedTuple):
    """`now`, the earliest stale_after of all leases, the earliest end of a pause."""

    now: datetime
    stale: datetime | None
    resumes: datetime | None


def _due_again(job: str, kind: str, scope: str, plan: datetime, id_: int, status: str) -> DueAgain:
    return DueAgain(ExecutionKey(job, kind, scope, plan), id_, status)


def _schedule(job: str, kind: str, scope: str, queue: str, *rest: Any) -> ScheduleRow:
    return ScheduleRow(ScopeKey(job, kind, scope), queue, *rest)


def _claimed(job: str, kind: str, scope: str, plan: datetime, *rest: Any) -> Claimed:
    return Claimed(ExecutionKey(job, kind, scope, plan), *rest)


def _swept(job: str, kind: str, scope: str, plan: datetime, *rest: Any) -> Swept:
    return Swept(ExecutionKey(job, kind, scope, plan), *rest)


def _columns(rows: Sequence[tuple[Any, ...]], *names: str) -> dict[str, list[Any]]:
    if not rows:
        return {name: [] for name in names}
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def _scopes(keys: Sequence[ScopeKey]) -> dict[str, Any]:
    return _columns(keys, "jobs", "kinds", "scopes")


def _keys(keys: Sequence[ExecutionKey]) -> dict[str, Any]:
    # The bounds let the server open only the partitions that can hold the rows.
    columns: dict[str, Any] = _columns(keys, "jobs", "kinds", "scopes", "plans")
    return {**columns, "first": min(columns["plans"]), "last": max(columns["plans"])}


@cache
def text(name: str, schema: str) -> str:
    """The statement of `sql/NAME.sql` with its schema filled in."""
    file = resources.files("cronledger.ledger") / "sql" / f"{name}.sql"
    return file.read_text("utf-8").replace("{schema}", schema)


class Statements:
    """The statements of one schema. Holds no connection and no state."""

    def __init__(self, schema: str = "cronledger") -> None:
        self.schema = schema

    async def _send(self, c: Connection, name: str, make: Any = None, **params: Any) -> Any:
        factory = tuple_row if make is None else args_row(make)
        cursor = c.cursor(row_factory=factory)
        await cursor.execute(text(name, self.schema).encode(), params or None)
        return cursor

    async def read_clock(self, c: Connection) -> Rows:
        return await self._send(c, "read_clock")  # type: ignore[no-any-return]

    async def lock_due_schedules(
        self, c: Connection, *, queues: Sequence[str], not_here: Sequence[str], max_rows: int
    ) -> AsyncCursor[ScheduleRow]:
        return await self._send(  # type: ignore[no-any-return]
            c, "lock_due_schedules", _schedule,
            queues=list(queues), not_here=list(not_here), max_rows=max_rows,
        )  # fmt: skip

    async def lock_due_again(
        self, c: Connection, *, queues: Sequence[str], not_here: Sequence[str], max_rows: int
    ) -> AsyncCursor[DueAgain]:
        return await self._send(  # type: ignore[no-any-return]
            c, "lock_due_again", _due_again,
            queues=list(queues), not_here=list(not_here), max_rows=max_rows,
        )  # fmt: skip

    async def lock_stale(
        self, c: Connection, *, queues: Sequence[str], not_here: Sequence[str],
        trusted_since: datetime, max_rows: int,
    ) -> AsyncCursor[DueAgain]:  # fmt: skip
        return await self._send(  # type: ignore[no-any-return]
            c, "lock_stale", _due_again,
            queues=list(queues), not_here=list(not_here), trusted_since=trusted_since,
            max_steals=MAX_STEALS, max_rows=max_rows,
        )  # fmt: skip

    async def lock_limited_queues(self, c: Connection, queues: Sequence[str]) -> Rows:
        return await self._send(c, "lock_limited_queues", queues=list(queues))  # type: ignore[no-any-return]

    async def lock_limited_jobs(self, c: Connection, jobs: Sequence[str]) -> Rows:
        return await self._send(c, "lock_limited_jobs", jobs=list(jobs))  # type: ignore[no-any-return]

    async def count_running_queues(self, c: Connection, queues: Sequence[str]) -> Rows:
        return await self._send(c, "count_running_queues", queues=list(queues))  # type: ignore[no-any-return]

    async def read_jobs(self, c: Connection, jobs: Sequence[str]) -> AsyncCursor[JobFacts]:
        return await self._send(c, "read_jobs", JobFacts, jobs=list(jobs))  # type: ignore[no-any-return]

    async def read_revisions(
        self, c: Connection, jobs: Sequence[str], revisions: Sequence[int]
    ) -> AsyncCursor[dict[str, Any]]:
        """Rows as dictionaries; `revision` from, per job."""
        cursor = c.cursor(row_factory=dict_row)
        await cursor.execute(
            text("read_revisions", self.schema).encode(),
            {"jobs": list(jobs), "revisions": list(revisions)},
        )
        return cursor

    async def read_running(
        self, c: Connection, scopes: Sequence[ScopeKey]
    ) -> AsyncCursor[tuple[str, str, str, datetime, int]]:
        return await self._send(c, "read_running", **_scopes(scopes))  # type: ignore[no-any-return]

    async def read_live_handlers(self, c: Connection) -> Rows:
        return await self._send(c, "read_live_handlers")  # type: ignore[no-any-return]

    async def try_claim_new(
        self, c: Connection, runner: str, claims: Sequence[NewClaim]
    ) -> AsyncCursor[Claimed]:
        params = _columns(
            [(*claim.key, *claim[1:]) for claim in claims],
            "jobs", "kinds", "scopes", "plans", "revisions", "queues", "dues", "payloads",
            "max_attempts", "tokens", "stale_timeouts",
        )  # fmt: skip
        params["payloads"] = [None if p is None else Jsonb(p) for p in params["payloads"]]
        return await self._send(c, "try_claim_new", _claimed, runner=runner, **params)  # type: ignore[no-any-return]

    async def try_claim_again(
        self, c: Connection, runner: str, claims: Sequence[AgainClaim], trusted_since: datetime
    ) -> AsyncCursor[Claimed]:
        rest = _columns([claim[1:] for claim in claims], "tokens", "stale_timeouts", "reentrant")
        return await self._send(  # type: ignore[no-any-return]
            c, "try_claim_again", _claimed, runner=runner, trusted_since=trusted_since,
            max_steals=MAX_STEALS, **_keys([claim.key for claim in claims]), **rest,
        )  # fmt: skip

    async def record_skips(
        self, c: Connection, skips: Sequence[tuple[ScopeKey, Skip, bool]]
    ) -> Rows:
        params = _columns(
            [
                (*key, k.from_plan_time, k.through_plan_time, k.count, k.reason.value, k.blocked_by,
                 k.revision, first)
                for key, k, first in skips
            ],
            "jobs", "kinds", "scopes", "froms", "throughs", "counts", "reasons", "blockers",
            "revisions", "first",
        )  # fmt: skip
        return await self._send(c, "record_skips", **params)  # type: ignore[no-any-return]

    async def advance_schedules(
        self, c: Connection, plans: Sequence[tuple[ScopeKey, Plan]]
    ) -> Rows:
        params = _columns(
            [
                (*key, p.planned_through, p.planned_revision, p.next_plan_time, p.next_due_at,
                 p.parked and p.parked.value)
                for key, p in plans
            ],
            "jobs", "kinds", "scopes", "throughs", "revisions", "next_plans", "next_dues", "parked",
        )  # fmt: skip
        return await self._send(c, "advance_schedules", **params)  # type: ignore[no-any-return]

    async def request_replacement(self, c: Connection, scopes: Sequence[ScopeKey]) -> Rows:
        return await self._send(c, "request_replacement", **_scopes(scopes))  # type: ignore[no-any-return]

    async def set_spec_errors(self, c: Connection, errors: Sequence[tuple[str, int, str]]) -> Rows:
        return await self._send(  # type: ignore[no-any-return]
            c, "set_spec_errors", **_columns(errors, "jobs", "revisions", "errors")
        )

    async def next_due(
        self, c: Connection, *, queues: Sequence[str], not_here: Sequence[str]
    ) -> AsyncCursor[NextDue]:
        return await self._send(  # type: ignore[no-any-return]
            c, "next_due", NextDue, queues=list(queues), not_here=list(not_here)
        )

    async def pulse(self, c: Connection, **runner: Any) -> AsyncCursor[Pulse]:
        runner["fingerprint"] = Jsonb(runner["fingerprint"])
        return await self._send(c, "pulse", Pulse, **runner)  # type: ignore[no-any-return]

    async def stop_runner(self, c: Connection, runner: str) -> Rows:
        return await self._send(c, "stop_runner", runner=runner)  # type: ignore[no-any-return]

    async def heartbeat_leases(
        self, c: Connection, leases: Sequence[LeaseKey]
    ) -> AsyncCursor[tuple[UUID, bool]]:
        rest = _columns([lease[1:] for lease in leases], "tokens", "stale_timeouts")
        return await self._send(  # type: ignore[no-any-return]
            c, "heartbeat_leases", **_keys([lease.key for lease in leases]), **rest
        )

    async def read_leases(
        self, c: Connection, keys: Sequence[ExecutionKey], tokens: Sequence[UUID]
    ) -> AsyncCursor[LeaseState]:
        return await self._send(  # type: ignore[no-any-return]
            c, "read_leases", LeaseState, **_keys(keys), tokens=list(tokens)
        )

    async def finish_executions(
        self, c: Connection, endings: Sequence[Ending]
    ) -> AsyncCursor[tuple[UUID]]:
        rest = _columns(
            [ending[1:] for ending in endings],
            "tokens", "statuses", "results", "rows_affected", "outputs", "error_codes",
            "error_msgs", "durations_ms", "retries_after",
        )  # fmt: skip
        return await self._send(  # type: ignore[no-any-return]
            c, "finish_executions", **_keys([ending.key for ending in endings]), **rest
        )

    async def give_back(
        self, c: Connection, keys: Sequence[ExecutionKey], tokens: Sequence[UUID],
        error_code: str, error_msg: str,
    ) -> AsyncCursor[tuple[UUID]]:  # fmt: skip
        return await self._send(  # type: ignore[no-any-return]
            c, "give_back", **_keys(keys), tokens=list(tokens),
            error_code=error_code, error_msg=error_msg,
        )  # fmt: skip

    async def find_unheld(self, c: Connection, runner: str, tokens: Sequence[UUID]) -> Rows:
        return await self._send(c, "find_unheld", runner=runner, tokens=list(tokens))  # type: ignore[no-any-return]

    async def lock_schedules(self, c: Connection, scopes: Sequence[ScopeKey]) -> Rows:
        return await self._send(c, "lock_schedules", **_scopes(scopes))  # type: ignore[no-any-return]

    async def rearm_unblocked(self, c: Connection, ended: Sequence[tuple[ScopeKey, str]]) -> Rows:
        """`ended`: (job, scope) with the queue, once for each execution that ended."""
        params = _columns(
            [(*key, queue) for key, queue in ended], "jobs", "kinds", "scopes", "queues"
        )
        return await self._send(c, "rearm_unblocked", **params)  # type: ignore[no-any-return]

    async def rearm_left_behind(self, c: Connection) -> Rows:
        return await self._send(c, "rearm_left_behind")  # type: ignore[no-any-return]

    async def sweep_stale(self, c: Connection, trusted_since: datetime) -> AsyncCursor[Swept]:
        return await self._send(  # type: ignore[no-any-return]
            c, "sweep_stale", _swept, trusted_since=trusted_since, max_steals=MAX_STEALS
        )

    async def resume_paused(self, c: Connection) -> Rows:
        return await self._send(c, "resume_paused")  # type: ignore[no-any-return]

    async def reap_runners(self, c: Connection) -> Rows:
        return await self._send(c, "reap_runners")  # type: ignore[no-any-return]

    async def maintain_partitions(
        self, c: Connection, retention: timedelta, width: timedelta
    ) -> AsyncCursor[tuple[str, str]]:
        return await self._send(c, "maintain_partitions", retention=retention, width=width)  # type: ignore[no-any-return]

    async def read_bounds(
        self, c: Connection
    ) -> AsyncCursor[tuple[datetime | None, datetime | None]]:
        return await self._send(c, "read_bounds")  # type: ignore[no-any-return]

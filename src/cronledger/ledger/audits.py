"""Readers for an audit: schedules, executions and skips of a range of keys, in one snapshot.

Executions and skips are read with server-side cursors, so that a million of them cost no memory.
The role cronledger_viewer may read everything.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import args_row, dict_row

from cronledger.ledger import queries
from cronledger.ledger.transactions import set_command_limits
from cronledger.rules import calendars
from cronledger.rules.model import ScopeKey

Row = dict[str, Any]
FETCH = 5000
READER_RESTS_SECONDS = 600.0
"""A person may read the findings in a pager for this long. The snapshot delays VACUUM."""
FIRST = ScopeKey("", "", "")
LAST = "\U0010ffff"  # sorts after every name, by bytes


class Span(NamedTuple):
    """The keys after `after`, up to and including `last`."""

    after: ScopeKey
    last: ScopeKey


class ScheduleState(NamedTuple):
    """The state of planning of one (job, scope), and when it was retired and returned, in order.

    `absent_from`, `absent_until`: of a host, the times in which no replica of it checked in. None,
    as the end of the last one: until now. Otherwise both are None. `boots`: of a host, the
    plan_times of `@reboot`; `noticed_after`: how long after each boot the host first checked in.
    """

    key: ScopeKey
    planned_through: datetime
    planned_revision: int
    parked: str | None
    created_at: datetime
    retirements: Sequence[datetime]
    returns: Sequence[datetime | None]
    absent_from: Sequence[datetime] | None = None
    absent_until: Sequence[datetime | None] | None = None
    boots: Sequence[datetime] | None = None
    noticed_after: Sequence[timedelta] | None = None


class FiredExecution(NamedTuple):
    """One execution that was fired by its schedule."""

    key: ScopeKey
    plan_time: datetime
    id: int
    revision: int
    due_at: datetime


class SkippedRange(NamedTuple):
    """One row of `skips`. `succeeded`: it is superseded, and a later execution succeeded."""

    key: ScopeKey
    first: datetime
    last: datetime
    total: int
    reason: str
    detail: str | None
    blocked_by: int | None
    revision: int
    created_at: datetime
    succeeded: bool = False


class TimedExecution(NamedTuple):
    """One execution, with what decides whether it met its deadlines."""

    key: ScopeKey
    plan_time: datetime
    id: int
    trigger: str
    revision: int
    status: str
    created_at: datetime
    first_started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    duration_ms: int | None


class GateEnd(NamedTuple):
    """The first start of a gated execution, or its skip `upstream` (`skipped_at`)."""

    key: ScopeKey
    id: int | None
    plan_time: datetime
    revision: int
    started_at: datetime | None
    skipped_at: datetime | None


class UpstreamRun(NamedTuple):
    """An execution of a job that others require."""

    plan_time: datetime
    status: str
    finished_at: datetime | None


class ReportedRun(NamedTuple):
    """A scheduled execution. `reported_at`: the start that its report states; None: it has none."""

    plan_time: datetime
    id: int
    started_at: datetime | None
    reported_at: datetime | None


class Beside(NamedTuple):
    """A report of a run that belongs to no plan_time."""

    id: int
    started_at: datetime
    received_at: datetime


class Blocker(NamedTuple):
    """The time in which an execution blocked others. `finished_at` None: it still does."""

    key: ScopeKey
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Audits:
    """Readers of one schema over a blocking, idle connection. They lock nothing.

    The methods raise psycopg.Error.
    """

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read everything within the block in one snapshot. Nothing can be written."""
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # Before any statement that takes the snapshot, because a partition that is dropped
            # later disappears from an older snapshot, too, and its pruned_through is too old.
            view = sql.Identifier(self._schema, "verify_executions")
            self._connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(view))
            set_command_limits(self._connection, READER_RESTS_SECONDS)
            # For this transaction, because behind a pooler the next one is another client's.
            self._connection.execute("SELECT set_config('work_mem', '32MB', true)")
            yield

    def _read(self, name: str, **params: object) -> list[Row]:
        return queries.rows(self._connection, name, self._schema, params)

    def _stream(self, name: str, factory: Any, **params: object) -> Iterator[Any]:
        with self._connection.cursor(f"audit_{name}", row_factory=factory) as c:
            c.itersize = FETCH
            yield from queries.run(c, name, self._schema, params, binary=True)

    def extent(self, jobs: list[str] | None) -> Row:
        """Return `now`, the number of `schedules`, and `pruned_through` (None: nothing)."""
        return self._read("show_audited_extent", jobs=jobs)[0]

    def schedules(self, after: ScopeKey, only: str | None, limit: int) -> list[ScheduleState]:
        """Return the next schedules after `after`. `only`: those of one job."""
        rows = self._read(
            "list_audited_schedules", only=only, max_rows=limit, **queries.scope(after)
        )
        return [ScheduleState(_pop_key(row), **row) for row in rows]

    def revisions(self, jobs: Sequence[str]) -> dict[str, list[Row]]:
        """Return the history of each of these jobs, the oldest revision first."""
        found: dict[str, list[Row]] = {}
        for row in self._read("list_audited_revisions", jobs=list(jobs)):
            found.setdefault(row["job_name"], []).append(row)
        return found

    def calendars(self, revisions: Mapping[str, Sequence[Row]]) -> list[Row]:
        """Return the revisions of calendars that the `revisions` of jobs name."""
        definitions = (row["definition"] for rows in revisions.values() for row in rows)
        keys = calendars.named_in(one for one in definitions if "calendar" in one)
        return self._read("read_calendars", **queries.calendar_keys(keys)) if keys else []

    def planned_skips(self, jobs: Sequence[str]) -> dict[str, list[Row]]:
        """Return the planned skips of each of these jobs that contain any instant."""
        found: dict[str, list[Row]] = {}
        for row in self._read("list_audited_planned_skips", jobs=list(jobs)):
            found.setdefault(row["job_name"], []).append(row)
        return found

    def executions(
        self, span: Span, after: datetime, through: datetime
    ) -> Iterator[FiredExecution]:
        """Yield executions of schedules with plan_time in (after, through], by key."""
        return self._stream(
            "list_audited_executions", _keyed(FiredExecution), **_within(span, after, through)
        )

    def skips(self, span: Span, after: datetime, through: datetime) -> Iterator[SkippedRange]:
        """Yield skips that reach into (after, through], by key and first plan_time."""
        return self._stream(
            "list_audited_skips", _keyed(SkippedRange), **_within(span, after, through)
        )

    def blockers(self, ids: Sequence[int]) -> dict[int, Blocker]:
        """Return those of these executions that exist, by id."""
        rows = self._read("list_audited_blockers", ids=list(ids))
        return {row.pop("id"): Blocker(_pop_key(row), **row) for row in rows}

    def first_execution(self) -> int | None:
        """Return the least id of all executions."""
        found: int | None = self._read("show_first_execution")[0]["id"]
        return found

    def history_violations(self, jobs: list[str] | None, first: datetime | None) -> Iterator[Row]:
        """Yield the violations that SQL finds in the history of these jobs (None: all).

        The server sorts all attempts from `first` on, on disk if there are many.
        """
        start = "-infinity" if first is None else first
        return self._stream("list_history_violations", dict_row, jobs=jobs, first=start)

    def wrong_hours(
        self, jobs: list[str] | None, first: datetime | None, last: datetime
    ) -> Iterator[Row]:
        """Yield the violations of the roll-up of hours in [first, last] of these jobs (None: all).

        The server reads their executions.
        """
        start = "-infinity" if first is None else first
        return self._stream("list_wrong_hours", dict_row, jobs=jobs, first=start, last=last)

    def jobs_with_deadlines(self, jobs: list[str] | None) -> list[Row]:
        """Return those of these jobs (None: all) that have or had deadlines: job_name, through."""
        return self._read("list_audited_deadlines", jobs=jobs)

    def timed_executions(
        self, span: Span, after: datetime, through: datetime
    ) -> Iterator[TimedExecution]:
        """Yield executions that may have deadlines, with plan_time in (after, through], by key."""
        return self._stream(
            "list_timed_executions", _keyed(TimedExecution), **_within(span, after, through)
        )

    def breaches(self, job: str, after: datetime, through: datetime) -> list[Row]:
        """Return breaches and unjudged deadlines of a job with plan_time in (after, through]."""
        return self._read("list_audited_breaches", job=job, after=after, through=through)

    def observed_jobs(self, jobs: list[str] | None) -> list[str]:
        """Return those of these jobs (None: all) that another scheduler runs, or ran."""
        return [row["job_name"] for row in self._read("list_observed_jobs", jobs=jobs)]

    def reported_runs(self, key: ScopeKey, after: datetime, through: datetime) -> list[ReportedRun]:
        """Return the scheduled executions with plan_time in (after, through]."""
        bounds = {"after": after, "through": through}
        rows = self._read("list_reported_runs", **queries.scope(key), **bounds)
        return [ReportedRun(**row) for row in rows]

    def unreported(
        self, key: ScopeKey, after: datetime, through: datetime
    ) -> list[tuple[datetime, datetime]]:
        """Return the first and the last plan_times of skips that reach into (after, through]."""
        bounds = {"after": after, "through": through}
        rows = self._read("list_unreported", **queries.scope(key), **bounds)
        return [(row["first"], row["last"]) for row in rows]

    def reports_beside(self, key: ScopeKey, after: datetime, through: datetime) -> list[Beside]:
        """Return the reports without a plan_time that started in (after, through]."""
        bounds = {"after": after, "through": through}
        rows = self._read("list_reports_beside", **queries.scope(key), **bounds)
        return [Beside(**row) for row in rows]

    def gated_jobs(self, jobs: list[str] | None) -> list[str]:
        """Return those of these jobs (None: all) that require or required others."""
        return [row["job_name"] for row in self._read("list_gated_jobs", jobs=jobs)]

    def gate_ends(self, key: ScopeKey, after: datetime, through: datetime) -> list[GateEnd]:
        """Return the starts and skips of gated executions with plan_time in (after, through]."""
        bounds = {"after": after, "through": through}
        rows = self._read("list_gate_ends", **queries.scope(key), **bounds)
        return [GateEnd(key, **row) for row in rows]

    def upstream_runs(self, key: ScopeKey, after: datetime, through: datetime) -> list[UpstreamRun]:
        """Return the executions of a required scope with plan_time in (after, through]."""
        bounds = {"after": after, "through": through}
        rows = self._read("list_upstream_runs", **queries.scope(key), **bounds)
        return [UpstreamRun(**row) for row in rows]

    def was_retried(self, job: str, execution_id: int) -> bool:
        """Return whether an operator has retried the execution."""
        return bool(self._read("show_audited_retry", job=job, id=execution_id)[0]["retried"])

    def present_violations(self) -> list[Row]:
        """Return the violations that SQL finds in the current state."""
        return self._read("list_present_violations")

    def accepted_violations(self, jobs: list[str] | None) -> list[Row]:
        """Return the acceptances of violations of these jobs (None: all) that hold."""
        return self._read("list_accepted_violations", jobs=jobs)

    def lost_schedules(self, jobs: list[str] | None) -> list[Row]:
        """Return the scopes of these jobs (None: all) that are missing in schedules."""
        return self._read("list_lost_schedules", jobs=jobs)


def _keyed(kind: Callable[..., Any]) -> Any:
    """Return a factory of rows whose first three columns are a key."""

    def make(job: str, scope_kind: str, scope_id: str, *rest: Any) -> Any:
        return kind(ScopeKey(job, scope_kind, scope_id), *rest)

    return args_row(make)


def _pop_key(row: Row) -> ScopeKey:
    return ScopeKey(row.pop("job_name"), row.pop("scope_kind"), row.pop("scope_id"))


def _within(span: Span, after: datetime, through: datetime) -> dict[str, object]:
    last = span.last
    return {
        **queries.scope(span.after),
        "last_job": last.job_name,
        "last_kind": last.scope_kind,
        "last_scope": last.scope_id,
        "after": after,
        "through": through,
    }

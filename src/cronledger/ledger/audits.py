"""What an audit reads: schedules, executions and skips of a range of keys, as of one snapshot.

Executions and skips come through server-side cursors, so that a million of them cost no memory.
Everything is open to the role cronledger_viewer.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import args_row, dict_row

from cronledger.ledger import queries
from cronledger.ledger.database import bound
from cronledger.rules.model import ScopeKey

Row = dict[str, Any]
FETCH = 5000
READER_RESTS_SECONDS = 600.0
"""Whoever reads what an audit finds may rest so long, at a pager: its snapshot holds up VACUUM."""
FIRST = ScopeKey("", "", "")
LAST = "\U0010ffff"  # no name comes after it in the order of bytes


class Span(NamedTuple):
    """Keys behind `after` up to and including `last`."""

    after: ScopeKey
    last: ScopeKey


class Stand(NamedTuple):
    """Where planning of one (job, scope) stands."""

    key: ScopeKey
    planned_through: datetime
    planned_revision: int
    parked: str | None
    retired_at: datetime | None
    returned_at: datetime | None
    created_at: datetime


class Ran(NamedTuple):
    """One execution that its schedule fired."""

    key: ScopeKey
    plan_time: datetime
    id: int
    revision: int
    due_at: datetime


class Skipped(NamedTuple):
    """One row of skips."""

    key: ScopeKey
    first: datetime
    last: datetime
    total: int
    reason: str
    blocked_by: int | None
    revision: int
    created_at: datetime


class Blocker(NamedTuple):
    """When an execution was in the way of others; `finished_at` None: it still is."""

    key: ScopeKey
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Audits:
    """Readers of one schema over a blocking, idle connection; lock nothing, raise psycopg.Error."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All that is read within is of one instant, and nothing can be written."""
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # Before any statement that takes the snapshot: a partition that is dropped later is
            # gone for an older snapshot too, whose pruned_through does not cover it.
            view = sql.Identifier(self._schema, "verify_executions")
            self._connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(view))
            bound(self._connection, READER_RESTS_SECONDS)
            # Only for this transaction: behind a pooler the next one is another's.
            self._connection.execute("SELECT set_config('work_mem', '32MB', true)")
            yield

    def _read(self, name: str, **params: object) -> list[Row]:
        with self._connection.cursor(row_factory=dict_row) as c:
            return queries.run(c, name, self._schema, params).fetchall()

    def _stream(self, name: str, factory: Any, **params: object) -> Iterator[Any]:
        with self._connection.cursor(f"audit_{name}", row_factory=factory) as c:
            c.itersize = FETCH
            yield from queries.run(c, name, self._schema, params, binary=True)

    def extent(self, jobs: Sequence[str] | None) -> Row:
        """`now`, `schedules` (how many) and `pruned_through`: None if nothing was pruned."""
        return self._read("show_audited_extent", jobs=None if jobs is None else list(jobs))[0]

    def stands(self, after: ScopeKey, only: str | None, limit: int) -> list[Stand]:
        """The next schedules behind `after`, of one job if `only` names it."""
        rows = self._read("list_audited_schedules", only=only, max_rows=limit, **_after(after))
        return [
            Stand(ScopeKey(row.pop("job_name"), row.pop("scope_kind"), row.pop("scope_id")), **row)
            for row in rows
        ]

    def revisions(self, jobs: Sequence[str]) -> dict[str, list[Row]]:
        """The history of each of these jobs, the oldest revision first."""
        found: dict[str, list[Row]] = {}
        for row in self._read("list_audited_revisions", jobs=list(jobs)):
            found.setdefault(row["job_name"], []).append(row)
        return found

    def executions(self, span: Span, after: datetime, through: datetime) -> Iterator[Ran]:
        """Executions of schedules with plan_time in (after, through], by key and plan_time."""

        def make(job: str, kind: str, scope: str, *rest: Any) -> Ran:
            return Ran(ScopeKey(job, kind, scope), *rest)

        return self._stream(
            "list_audited_executions", args_row(make), **_within(span, after, through)
        )

    def skips(self, span: Span, after: datetime, through: datetime) -> Iterator[Skipped]:
        """Skips that reach into (after, through], by key and first plan_time."""

        def make(job: str, kind: str, scope: str, *rest: Any) -> Skipped:
            return Skipped(ScopeKey(job, kind, scope), *rest)

        return self._stream("list_audited_skips", args_row(make), **_within(span, after, through))

    def blockers(self, ids: Sequence[int]) -> dict[int, Blocker]:
        """These executions by id, as far as they are there."""
        rows = self._read("list_audited_blockers", ids=list(ids))
        return {
            row.pop("id"): Blocker(
                ScopeKey(row.pop("job_name"), row.pop("scope_kind"), row.pop("scope_id")), **row
            )
            for row in rows
        }

    def first_execution(self) -> int | None:
        """The least id of all executions that are there."""
        found: int | None = self._read("show_first_execution")[0]["id"]
        return found

    def history_violations(
        self, jobs: Sequence[str] | None, first: datetime | None
    ) -> Iterator[Row]:
        """What SQL alone finds wrong in what these jobs (None: all) did from `first` on.

        The server sorts all attempts of them, on disk where they are many.
        """
        start = "-infinity" if first is None else first
        names = None if jobs is None else list(jobs)
        return self._stream("list_history_violations", dict_row, jobs=names, first=start)

    def present_violations(self) -> list[Row]:
        """What SQL alone finds wrong in what stands now."""
        return self._read("list_present_violations")

    def accepted_violations(self, jobs: Sequence[str] | None) -> list[Row]:
        """The acceptances that hold of violations of these jobs (None: of all)."""
        return self._read("list_accepted_violations", jobs=None if jobs is None else list(jobs))

    def lost_schedules(self, jobs: Sequence[str] | None) -> list[Row]:
        """Scopes that these jobs (None: all) plan, and that have no row in schedules."""
        return self._read("list_lost_schedules", jobs=None if jobs is None else list(jobs))


def _after(key: ScopeKey) -> dict[str, object]:
    return {"job": key.job_name, "kind": key.scope_kind, "scope": key.scope_id}


def _within(span: Span, after: datetime, through: datetime) -> dict[str, object]:
    last = span.last
    return {
        **_after(span.after),
        "last_job": last.job_name,
        "last_kind": last.scope_kind,
        "last_scope": last.scope_id,
        "after": after,
        "through": through,
    }

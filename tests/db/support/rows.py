"""Rows of the ledger for tests: valid by default, every column open to the test."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import sql
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

from tests.waiting import until

Db = psycopg.Connection[DictRow]
T = TypeVar("T")


@contextmanager
def connected(url: str) -> Iterator[Db]:
    """A connection in autocommit mode whose rows are dictionaries."""
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        yield connection


def insert(db: Db, table: str, **columns: Any) -> DictRow:
    """The row as the database made it."""
    return one(write(db, table, **columns))


def write(db: Db, table: str, **columns: Any) -> psycopg.Cursor[DictRow]:
    """Insert a row whose values psycopg may be unable to read."""
    statement = sql.SQL("INSERT INTO cronledger.{} ({}) VALUES ({}) RETURNING *").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join(map(sql.Placeholder, columns)),
    )
    return db.execute(statement, columns)


TARGETS = {
    "python": '{"python": "tests:work"}', "command": '{"command": ["true"]}',
    "sql": '{"sql": "SELECT 1"}', "http": '{"url": "http://localhost/"}', "external": "{}",
    "observed": "{}",
}  # fmt: skip


def job(db: Db, name: str = "job", **columns: Any) -> DictRow:
    row = {"name": name, "handler": "command", "schedule": "@hourly"} | columns
    return insert(db, "jobs", **{"target": TARGETS.get(row["handler"], "{}")} | row)


def runner(db: Db, name: str = "r1", **columns: Any) -> DictRow:
    defaults = {
        "id": name, "host": "h", "pid": 1, "version": "1", "state": "running",
        "queues": ["default"], "slots": 10, "stale_after": now(db) + timedelta(minutes=1),
    }  # fmt: skip
    return insert(db, "runners", **defaults | columns)


def execution(db: Db, status: str = "SUCCESS", job: str = "job", **columns: Any) -> DictRow:
    """Insert an execution that was planned a minute ago, and its partition if that is missing."""
    at = columns.get("plan_time", now(db) - timedelta(minutes=1))
    partitions(db, at)
    row: dict[str, Any] = {
        "job_name": job, "scope_kind": "global", "scope_id": "global", "plan_time": at,
        "status": status, "trigger": "schedule", "revision": 1, "queue": "default", "due_at": at,
        "attempt": 1, "max_attempts": 3,
    }  # fmt: skip
    if status == "PENDING":
        row |= {"attempt": 0, "next_attempt_at": columns.get("due_at", at)}
    else:
        row |= {"runner_id": "r1", "lease_token": uuid.uuid4(), "started_at": at}
        row |= {"heartbeat_at": at, "stale_after": now(db) + timedelta(minutes=1)}
    if status in ("SUCCESS", "FAILED", "CANCELLED"):
        row |= {"finished_at": at + timedelta(seconds=2), "duration_ms": 2000}
    if status == "FAILED":
        row |= {"error_code": "boom", "error_msg": "it broke"}
    return insert(db, "executions", **row | columns)


def skip(  # noqa: PLR0917
    db: Db, first: datetime, through: datetime | None = None, count: int = 1,
    reason: str = "missed", job: str = "job", **columns: Any,
) -> DictRow:  # fmt: skip
    """Insert a skip of the plan_times from `first` to `through`, by default of `first` alone."""
    row = {
        "job_name": job, "scope_kind": "global", "scope_id": "global", "from_plan_time": first,
        "through_plan_time": through or first, "count": count, "reason": reason, "revision": 1,
    }  # fmt: skip
    return insert(db, "skips", **row | columns)


def schedule(db: Db, job: str | None = None, scope_id: str | None = None, **columns: Any) -> None:
    """Set columns of the schedules of a job, of a scope or of all, which are not woken any more."""
    values = {"woken": False, "parked": None, **columns}
    sets = ", ".join(f"{name} = %s" for name in values)
    statement = (
        f"UPDATE cronledger.schedules SET {sets} WHERE job_name = coalesce(%s, job_name)"
        " AND scope_id = coalesce(%s, scope_id)"
    )
    db.execute(statement.encode(), [*values.values(), job, scope_id])


def channel(db: Db, name: str = "ops", **settings: Any) -> DictRow:
    """Insert a channel of alerts, by default one that runs a command."""
    default = {} if "kind" in settings else {"kind": "command", "command": ["true"]}
    return insert(db, "channels", name=name, settings=Jsonb(default | settings))


def verification(db: Db, **columns: object) -> DictRow:
    """Insert a run of verify that has ended."""
    at = now(db)
    counts = dict.fromkeys(
        ("schedules", "plan_times", "executions", "skips", "behind", "violations", "accepted"), 0
    )
    row = {
        "requested_by": "nightly", "version": "1", "started_at": at - timedelta(hours=1),
        "finished_at": at, "outcome": "finished", "kinds": Jsonb({}), **counts, **columns,
    }  # fmt: skip
    return insert(db, "verification_runs", **row)


def copies(db: Db, row: DictRow, count: int) -> None:
    """Insert `count` copies of an execution, each planned a minute before the one before it."""
    partitions(db, *(row["plan_time"] - timedelta(minutes=n) for n in (1, count)))
    db.execute(
        "INSERT INTO cronledger.executions SELECT c.* FROM cronledger.executions e,"
        " generate_series(1, %s) n, LATERAL jsonb_populate_record(e, jsonb_build_object("
        "   'id', nextval('cronledger.execution_id'), 'lease_token', gen_random_uuid(),"
        "   'plan_time', e.plan_time - n * interval '1 min')) c WHERE e.id = %s",
        [count, row["id"]],
    )


def partitions(db: Db, *plan_times: datetime) -> None:
    """Create the partitions that are missing for executions of these plan_times.

    The oldest partition of a new ledger is the week of yesterday. So on some days of the week it
    has a partition for a plan_time of three days ago, and on others it has none.
    """
    db.execute(
        "SELECT cronledger_internal.create_missing_partitions(%s::timestamptz[])",
        [list(plan_times)],
    )


def one(cursor: psycopg.Cursor[DictRow]) -> DictRow:
    """The only row."""
    rows = cursor.fetchall()
    assert len(rows) == 1, rows
    return rows[0]


def value(db: Db, statement: LiteralString | sql.Composed, *parameters: Any) -> Any:
    """The only column of the only row."""
    (found,) = one(db.execute(statement, parameters)).values()
    return found


def now(db: Db) -> datetime:
    at = value(db, "SELECT cronledger.db_clock()")
    assert isinstance(at, datetime)
    return at


def travel(db: Db, offset: timedelta) -> None:
    """Both clocks of the schema show `offset` more than the server's, for everybody."""
    for name, kind, clock in (
        ("db_now", "STABLE", "statement_timestamp"), ("db_clock", "VOLATILE", "clock_timestamp"),
    ):  # fmt: skip
        statement = (
            f"CREATE OR REPLACE FUNCTION cronledger.{name}() RETURNS timestamptz LANGUAGE sql"
            f" {kind} PARALLEL SAFE"
            f" AS $$ SELECT {clock}() + interval '{offset.total_seconds()} s' $$"
        )
        db.execute(statement.encode())


def start_blocked(watcher: Db, other: Db, work: Callable[[], T]) -> Future[T]:
    """`work` runs on the connection `other` in a thread, and waits for a lock by now."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    until("it waits for a lock", lambda: future.done() or waits(watcher, other))
    assert not future.done(), f"it did not wait: {future.result()!r}"
    return future


def waits(watcher: Db, other: Db) -> bool:
    pid = other.info.backend_pid
    return bool(value(watcher, "SELECT cardinality(pg_blocking_pids(%s)) > 0", pid))

"""Tables, the triggers on jobs, and partitions."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID

import pytest
from psycopg import errors, sql

from cronledger.ledger.migrate import directory
from tests.db.support.engine import DAY, HOUR, MINUTE
from tests.db.support.rows import (
    Db,
    execution,
    insert,
    job,
    now,
    runner,
    schedule,
    skip,
    start_blocked,
    travel,
    value,
)

LEDGER_SQL = Path(__file__).parents[2] / "src" / "cronledger" / "ledger" / "sql"
MONDAY = datetime(2001, 1, 1, tzinfo=UTC)


def test_every_table_view_column_and_function_has_a_comment(db: Db) -> None:
    relations = db.execute(
        "SELECT c.relname, a.attname FROM pg_class c LEFT JOIN pg_attribute a"
        "    ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " WHERE c.relnamespace = 'cronledger'::regnamespace AND c.relkind IN ('r', 'p', 'v')"
        "   AND NOT c.relispartition AND (obj_description(c.oid, 'pg_class') IS NULL"
        "                                 OR col_description(c.oid, a.attnum) IS NULL)"
    ).fetchall()
    functions = db.execute(
        "SELECT p.oid::regprocedure::text FROM pg_proc p"
        " WHERE p.pronamespace::regnamespace::text ~ '^cronledger'"
        "   AND obj_description(p.oid, 'pg_proc') IS NULL"
    ).fetchall()
    assert (relations, functions) == ([], [])


COMPILED = """
SELECT p.oid::regprocedure::text AS function,
       l.lanname = 'sql' AND NOT p.prosecdef
       AND coalesce(p.proconfig, '{}') <@ '{jit=off}' AS inlined,
       coalesce('jit=off' = ANY (p.proconfig), false) AS interpreted,
       p.prorettype = 'trigger'::regtype OR EXISTS (
           SELECT FROM aclexplode(p.proacl) a
           WHERE a.grantee IN (0, 'cronledger_viewer'::regrole, 'cronledger_operator'::regrole)
       ) AS entered
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace::regnamespace::text ~ '^cronledger'
"""


def test_functions_that_sessions_enter_are_not_compiled_and_simple_ones_stay_inlined(
    db: Db,
) -> None:
    """A server with LLVM needs 100 ms to compile a statement. Replicas set jit for their steps."""
    found = db.execute(COMPILED).fetchall()
    assert [
        f["function"] for f in found if f["entered"] and not (f["interpreted"] or f["inlined"])
    ] == []
    assert [f["function"] for f in found if f["interpreted"] and f["inlined"]] == []


BARE_CLOCK = re.compile(
    r"(?<!\w)(?:now|(?:transaction|statement|clock)_timestamp|timeofday)\s*\("
    r"|\b(?:current_timestamp|current_time|current_date|localtimestamp|localtime)\b"
    r"|'(?:now|today|tomorrow|yesterday)'",
    re.IGNORECASE,
)


def test_no_statement_reads_another_clock() -> None:
    files = sorted(directory().rglob("*.sql")) + sorted(LEDGER_SQL.rglob("*.sql"))
    assert len(files) > 40
    found = {
        path.name: BARE_CLOCK.findall(re.sub(r"--.*", "", path.read_text("utf-8")))
        for path in files
    }
    assert {name: clocks for name, clocks in found.items() if clocks} == {
        "0001_pre_baseline.sql": ["statement_timestamp(", "clock_timestamp("]
    }


BAD_VALUES: dict[str, Any] = {
    "name": "", "schedule": "*" * 257, "dst_gap": "later", "dst_fold": "second",
    "schedule_delay": "-1 s", "jitter": "-1 s", "grace": "-1 s", "catch_up": "some",
    "catch_up_window": "-1 s", "catch_up_limit": 0, "overlap": "queue", "max_running": 0,
    "queue": "", "handler": "lambda", "target": "[]", "run_timeout": "0", "stale_timeout": "2 s",
    "max_attempts": 0, "retry_backoff": "{}", "retry_jitter": 1.5, "payload_schema": "[]",
    "owner": "a\nb", "labels": '["team"]', "runbook": "javascript:alert(1)",
    "keep_output": "59 minutes",
}  # fmt: skip
"""What the CHECK of each column refuses."""
BOOT: dict[str, Any] = {"schedule": " @Reboot", "every": ["role=web"]}
BAD_JOBS: list[tuple[dict[str, Any], str]] = [
    ({"keep_output": "36526 days"}, "jobs_keep_output_check"),
    ({"catch_up": "all"}, "catch_up_all_needs_overlap"),
    ({"scopes": ["a"]}, "scopes_need_a_kind"),
    ({"grace": "1000000 years"}, "at_most_a_century"),
    ({"starts_at": "infinity"}, "years_of_four_digits"),
    ({"ends_at": "20000-01-01"}, "years_of_four_digits"),
    ({"windows": True, "overlap": "allow"}, "windows_need_an_order"),
    (BOOT | {"every": None}, "reboot_needs_hosts"),
    (BOOT | {"windows": True, "overlap": "wait"}, "reboot_needs_hosts"),
    (BOOT | {"start_by": "5m"}, "reboot_needs_hosts"),
    # What another scheduler does not know.
    ({"observed": True, "jitter": "1 s"}, "observed_has_plain_plan_times"),
    ({"observed": True, "every": ["role=web"], "on": ["role=web"]}, "hosts_need_replicas"),
]


def test_bad_jobs_are_refused(db: Db) -> None:
    of_columns = [({column: bad}, f"jobs_{column}_check") for column, bad in BAD_VALUES.items()]
    for columns, constraint in of_columns + BAD_JOBS:
        with pytest.raises(errors.CheckViolation) as caught:
            job(db, **columns)
        assert caught.value.diag.constraint_name == constraint


BAD_EXECUTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("DONE", {}, "status_columns"),
    ("SUCCESS", {"trigger": "cron"}, "executions_trigger_check"),
    ("SUCCESS", {"attempt": -1}, "status_columns"),
    ("SUCCESS", {"attempt": 4}, "status_columns"),
    ("PENDING", {"max_attempts": 0}, "status_columns"),
    ("FAILED", {"error_msg": "x" * 4001}, "executions_error_msg_check"),
    ("SUCCESS", {"attempts": "{}"}, "executions_attempts_check"),
]
LEASE = ("runner_id", "lease_token", "heartbeat_at", "stale_after", "started_at")
BAD_COLUMNS: dict[str, dict[str, Any]] = {
    "PENDING": {
        "runner_id": "r1",
        "lease_token": str(UUID(int=0)),
        "started_at": "infinity",
        "finished_at": "infinity",
    },
    "RUNNING": dict.fromkeys(LEASE) | {"attempt": 0, "finished_at": "infinity"},
    "SUCCESS": dict.fromkeys(("lease_token", "finished_at", "duration_ms")),
    "FAILED": dict.fromkeys(("error_code", "finished_at")),
    "CANCELLED": dict.fromkeys(("finished_at",)),
}


def test_bad_executions_are_refused(db: Db) -> None:
    bad = list(BAD_EXECUTIONS)
    for status, columns in BAD_COLUMNS.items():
        bad += [(status, {column: value}, "status_columns") for column, value in columns.items()]
        if status != "FAILED":
            bad.append((status, {"next_attempt_at": "infinity"}, "status_columns"))
    bad.append(("PENDING", {"next_attempt_at": None}, "status_columns"))
    for status, columns, constraint in bad:
        with pytest.raises(errors.CheckViolation) as caught:
            execution(db, status, **columns)
        assert caught.value.diag.constraint_name == constraint, (status, columns)


BAD_SCHEDULES: list[dict[str, Any]] = [
    {"next_due_at": "infinity", "parked": "waiting"},
    {"next_due_at": None},
    {"parked": "tired", "next_due_at": None},
    {"parked": "ended", "next_due_at": None, "returned_at": "infinity"},
]


def test_other_bad_rows_are_refused(db: Db) -> None:
    job(db)
    at = now(db)
    writes: list[Callable[[], object]] = [
        lambda: insert(db, "queues", name=""),
        lambda: insert(db, "queues", name="q", max_running=0),
        lambda: insert(db, "queues", name="q", paused_by="me"),
        lambda: skip(db, at, count=0),
        lambda: skip(db, at, reason="forgotten"),
        lambda: runner(db, state="tired"),
        lambda: runner(db, slots=-1),
        *(partial(schedule, db, **columns) for columns in BAD_SCHEDULES),
    ]
    for write in writes:
        with pytest.raises(errors.CheckViolation):
            write()


# The triggers on jobs


def history(db: Db, column: str, name: str = "job") -> list[Any]:
    """This column of each revision of the job."""
    statement = "SELECT * FROM cronledger.job_revisions WHERE job_name = %s ORDER BY revision"
    return [row[column] for row in db.execute(statement, [name])]


def schedules(db: Db, name: str = "job") -> dict[str, dict[str, Any]]:
    rows = db.execute(
        "SELECT * FROM cronledger.schedules WHERE job_name = %s ORDER BY scope_id", [name]
    )
    return {r["scope_id"]: r for r in rows}


def test_a_new_job_has_a_revision_and_a_schedule_that_starts_now(db: Db) -> None:
    before = now(db)
    made = job(db, edited_by="alice", revision=17)
    assert made["revision"] == 1
    assert (history(db, "state"), history(db, "requested_by")) == (["active"], ["alice"])
    (row,) = schedules(db).values()
    assert (row["scope_kind"], row["scope_id"], row["parked"]) == ("global", "global", None)
    assert before < row["planned_through"] == row["next_due_at"] == history(db, "effective_from")[0]


EDITS: tuple[LiteralString, ...] = (
    "schedule = '@daily'", "overlap = 'wait'", "payload = '1'", "paused_at = '2030-01-01'",
    "retry_backoff = '{1 s}'", "ends_at = '2030-01-01'", "timezone = 'Asia/Tokyo'",
    "retry_on = '{timeout}'", "never_retry_on = '{timeout}'", "payload_schema = '{}'",
    "keep_output = '7 d'", "owner = 'data'", "retired_at = '2030-01-01'",
    "runbook = 'https://wiki/x'", """labels = '{"team": "data"}'""",
)  # fmt: skip
OTHER_CHANGES: tuple[LiteralString, ...] = (
    "description = 'x'", "source = 'f'", "deploy = 3", "spec_error = 'bad'", "revision = 9",
)  # fmt: skip


def test_edits_make_revisions_and_wake_the_schedules(db: Db) -> None:
    job(db)
    for edit in EDITS:
        db.execute("UPDATE cronledger.jobs SET spec_error = 'bad'")
        schedule(db, parked="waiting", next_due_at=None)
        db.execute(sql.SQL("UPDATE cronledger.jobs SET {}").format(sql.SQL(edit)))
        *_, before, edited = history(db, "effective_from")
        assert before < edited, edit
        row = schedules(db)["global"]
        assert row["parked"] is None, edit
        assert before < row["next_due_at"] <= edited, edit
        assert value(db, "SELECT spec_error FROM cronledger.jobs") is None, edit
    assert len(history(db, "revision")) == 1 + len(EDITS)


def test_changes_of_other_columns_make_no_revision(db: Db) -> None:
    job(db)
    schedule(db, parked="waiting", next_due_at=None)
    for change in OTHER_CHANGES:
        db.execute(sql.SQL("UPDATE cronledger.jobs SET {}").format(sql.SQL(change)))
        assert len(history(db, "revision")) == 1, change
        assert schedules(db)["global"]["parked"] == "waiting", change
        assert value(db, "SELECT revision FROM cronledger.jobs") == 1, change


def test_a_revision_names_who_made_it_and_nobody_else(db: Db) -> None:
    me = value(db, "SELECT session_user")
    job(db)
    db.execute("UPDATE cronledger.jobs SET schedule = '@daily', edited_by = 'alice'")
    db.execute("UPDATE cronledger.jobs SET schedule = '@weekly'")
    db.execute("UPDATE cronledger.jobs SET schedule = '@daily', edited_by = 'bob'")
    db.execute("UPDATE cronledger.jobs SET schedule = '@weekly', edited_by = 'bob'")
    db.execute(
        "INSERT INTO cronledger.jobs (name, handler, schedule, edited_by)"
        " VALUES ('job', 'external', '@daily', 'carol') ON CONFLICT (name)"
        " DO UPDATE SET handler = EXCLUDED.handler, edited_by = EXCLUDED.edited_by"
    )
    assert history(db, "requested_by") == [me, "alice", me, "bob", "bob", "carol"]
    db.execute("UPDATE cronledger.jobs SET spec_error = 'bad'")
    assert value(db, "SELECT edited_by FROM cronledger.jobs") == "carol"


def test_i10_a_pause_that_ended_by_itself_ended_then_and_a_later_edit_holds_from_now(
    db: Db,
) -> None:
    for name, edit, reaches_back in (
        ("resumed", "paused_at = NULL", True),
        ("edited", "paused_at = NULL, schedule = '* * * * *'", False),
    ):
        job(db, name)
        until = now(db) + MINUTE
        db.execute(
            "UPDATE cronledger.jobs SET paused_at = cronledger.db_now(), paused_until = %s"
            " WHERE name = %s",
            [until, name],
        )
        travel(db, HOUR)
        before = now(db)
        db.execute(f"UPDATE cronledger.jobs SET {edit} WHERE name = %s".encode(), [name])
        resumed = history(db, "effective_from", name)[2]
        assert resumed == until if reaches_back else resumed > before
        travel(db, timedelta(0))


def test_a_rename_is_refused(db: Db) -> None:
    job(db)
    with pytest.raises(
        errors.RestrictViolation, match="job job: a job cannot be renamed"
    ) as caught:
        db.execute("UPDATE cronledger.jobs SET name = 'other'")
    assert caught.value.diag.message_hint


def test_a_deletion_ends_the_history_and_a_new_job_goes_on_with_it(db: Db) -> None:
    job(db)
    waiting = execution(db, "PENDING")
    retried = execution(db, "FAILED", plan_time=now(db) - HOUR, next_attempt_at=now(db))
    running = execution(db, "RUNNING", plan_time=now(db) - 2 * HOUR)
    schedule(db, parked="waiting", next_due_at=None)
    db.execute("DELETE FROM cronledger.jobs")
    assert history(db, "state") == ["active", "retired"]
    statuses = {
        r["id"]: r["status"] for r in db.execute("SELECT id, status FROM cronledger.executions")
    }
    assert statuses == {
        waiting["id"]: "CANCELLED",
        retried["id"]: "CANCELLED",
        running["id"]: "RUNNING",
    }
    assert schedules(db)["global"]["next_due_at"] is not None
    assert job(db)["revision"] == 3


def test_scopes_appear_retire_and_return_also_with_their_kind(db: Db) -> None:
    job(db, scope_kind="tenant", scopes=["a", "b"])
    born = schedules(db)
    assert set(born) == {"a", "b"}

    db.execute("UPDATE cronledger.jobs SET scopes = '{b,c}'")
    then = schedules(db)
    assert set(then) == {"a", "b", "c"}
    edited = history(db, "effective_from")[1]
    assert then["a"]["retired_at"] == then["c"]["planned_through"] == edited
    assert then["b"]["retired_at"] is None
    assert then["b"]["planned_through"] == born["b"]["planned_through"]

    db.execute("UPDATE cronledger.jobs SET scopes = '{a,b}'")
    again = schedules(db)
    assert again["a"]["retired_at"] == then["a"]["retired_at"]
    edited = history(db, "effective_from")[2]
    assert again["a"]["returned_at"] == again["c"]["retired_at"] == edited
    assert again["a"]["planned_through"] == born["a"]["planned_through"]

    job(db, "moved")
    db.execute("UPDATE cronledger.jobs SET scope_kind = 'tenant' WHERE name = 'moved'")
    assert schedules(db, "moved")["global"]["retired_at"] is not None
    db.execute("UPDATE cronledger.jobs SET scope_kind = 'global' WHERE name = 'moved'")
    assert schedules(db, "moved")["global"]["returned_at"] is not None


def test_a_queue_is_copied_also_to_scopes_that_appear_during_an_edit(db: Db, other: Db) -> None:
    job(db, scope_kind="tenant")
    db.execute("SELECT * FROM cronledger_internal.set_scopes('job', 'tenant', '{b}')")

    def answer() -> None:
        other.execute("SELECT * FROM cronledger_internal.set_scopes('job', 'tenant', '{a,b}')")

    with db.transaction():
        db.execute("UPDATE cronledger.jobs SET queue = 'slow'")
        answered = start_blocked(db, other, answer)
    answered.result(90)
    found = schedules(db)
    assert found["a"]["queue"] == found["b"]["queue"] == "slow"
    assert found["a"]["planned_revision"] == 2


def test_i10_an_edit_waits_for_a_claim_and_is_dated_after_the_wait(db: Db, other: Db) -> None:
    """The claim holds the schedule and takes the job with SKIP LOCKED: no deadlock."""
    job(db, max_running=1)
    edit = "UPDATE cronledger.jobs SET schedule = '@daily'"
    with db.transaction():
        db.execute("SELECT FROM cronledger.schedules FOR NO KEY UPDATE SKIP LOCKED")
        edited = start_blocked(db, other, lambda: other.execute(edit))
        limited = db.execute("SELECT FROM cronledger.jobs FOR NO KEY UPDATE SKIP LOCKED")
        assert limited.fetchall() == []
        planned = now(db)
        db.execute("UPDATE cronledger.schedules SET planned_through = %s", [planned])
    edited.result(90)
    assert history(db, "effective_from")[1] > planned


def maintain(db: Db, **arguments: Any) -> list[tuple[str, str]]:
    arguments = {"width": "7 days", "ahead": "28 days"} | arguments
    if "retention" in arguments:
        db.execute("SELECT cronledger.set_retention(%(retention)s)", arguments)
    rows = db.execute(
        "SELECT * FROM cronledger.maintain_partitions(%(width)s, %(ahead)s)", arguments
    )
    return [(r["action"], r["subject"]) for r in rows]


def maintain_existing(db: Db, **arguments: Any) -> list[tuple[str, str]]:
    """What maintenance did, except for the partitions that a new day needs.

    Midnight may have passed since the tests' template database was made."""
    return [done for done in maintain(db, **arguments) if done[0] != "made"]


def bounds(db: Db) -> list[tuple[datetime, datetime]]:
    rows = db.execute(
        "SELECT from_plan_time, before_plan_time FROM cronledger.partitions()"
    ).fetchall()
    return [(r["from_plan_time"], r["before_plan_time"]) for r in rows]


def assert_gapless(db: Db, first: datetime, last: datetime) -> None:
    found = bounds(db)
    for (_, before), (following, _) in pairwise(found):
        assert before == following
    assert found[0][0] <= first
    assert found[-1][1] > last


def unpartitioned(db: Db) -> None:
    for row in db.execute("SELECT name FROM cronledger.partitions()").fetchall():
        db.execute(sql.SQL("DROP TABLE cronledger.{}").format(sql.Identifier(row["name"])))


def test_partitions_are_made_from_a_day_back_to_a_month_ahead(db: Db) -> None:
    migrated = value(db, "SELECT min(applied_at) FROM cronledger.schema_migrations")
    assert_gapless(db, migrated - DAY, migrated + 28 * DAY)
    assert {(start - MONDAY) % (7 * DAY) for start, _ in bounds(db)} == {timedelta(0)}
    assert len(bounds(db)) <= 6
    maintain(db)
    assert maintain(db) == []
    # They are filled to 70 per cent, so that heartbeats are hot.
    filled = "SELECT min(reloptions::text) FROM pg_class WHERE relispartition AND relkind = 'r'"
    assert "fillfactor=70" in value(db, filled)


def test_partitions_reach_back_as_far_as_a_job_catches_up(db: Db) -> None:
    job(db, catch_up_window="30 days")
    made = maintain(db)
    assert {action for action, _ in made} == {"made"}
    assert_gapless(db, now(db) - 30 * DAY, now(db) + 28 * DAY)
    job(db, "other", catch_up_window="1000 days")
    maintain(db)
    assert_gapless(db, now(db) - 90 * DAY, now(db) + 28 * DAY)
    assert bounds(db)[0][0] > now(db) - 98 * DAY


@pytest.mark.parametrize(
    ("width", "zone"),
    [("7 days", "Europe/Berlin"), ("90 minutes", "Asia/Kolkata"), ("1 month", "Europe/Berlin")],
)
def test_partitions_of_any_width_cover_now(db: Db, width: str, zone: str) -> None:
    """Neither the zone nor the date style of a session moves a bound."""
    unpartitioned(db)
    db.execute(sql.SQL("SET timezone = {}").format(sql.Literal(zone)))
    db.execute("SET datestyle = 'SQL, DMY'")
    assert maintain(db, width=width, ahead="1 day")
    assert maintain_existing(db, width=width, ahead="1 day") == []
    db.execute("RESET datestyle")
    assert_gapless(db, now(db) - DAY, now(db) + DAY)
    db.execute("SET timezone = 'UTC'")  # Python subtracts times of one zone by their digits
    span = value(db, "SELECT extract(epoch FROM %s::interval)::bigint", width)
    for start, before in bounds(db):
        assert (start - MONDAY) % timedelta(seconds=span) == timedelta(0)
        assert before - start == timedelta(seconds=span)
    maintain(db, width="5 days", ahead="40 days")  # those of another width follow
    assert_gapless(db, now(db) - DAY, now(db) + 40 * DAY)
    start, before = bounds(db)[-1]
    assert before - start == 5 * DAY


@pytest.mark.long
def test_old_partitions_are_dropped_unless_they_are_busy(db: Db) -> None:
    job(db)
    rows = {
        days: execution(db, status, plan_time=now(db) + days * DAY)
        for days, status in ((0, "PENDING"), (7, "RUNNING"), (14, "SUCCESS"), (21, "FAILED"))
    }
    old = {days: row["plan_time"] for days, row in rows.items()}
    db.execute(
        "UPDATE cronledger.executions SET next_attempt_at = plan_time WHERE status = 'FAILED'"
    )
    travel(db, 150 * DAY)
    actions = maintain(db)
    assert [a for a, _ in actions if a == "dropped"]
    kept = [(start, before) for start, before in bounds(db) if before < now(db) - 90 * DAY]
    held = {days for days, at in old.items() for s, b in kept if s <= at < b}
    assert held == {0, 7, 21}
    assert len(kept) == 3

    db.execute("UPDATE cronledger.executions SET next_attempt_at = NULL WHERE status = 'FAILED'")
    assert [action for action, _ in maintain(db)] == ["dropped"]
    assert maintain(db) == []


def test_a_partition_in_use_is_left_for_the_next_time(db: Db, other: Db) -> None:
    execution(db)
    travel(db, 150 * DAY)
    with other.transaction():
        other.execute("SELECT FROM cronledger.executions FOR KEY SHARE")
        assert "dropped" not in {action for action, _ in maintain(db)}
    assert "dropped" in {action for action, _ in maintain(db)}


def partition_of_the_execution(db: Db) -> str:
    name: str = value(db, "SELECT tableoid::regclass::text FROM cronledger.executions")
    return name.removeprefix("cronledger.")


def analyzed_while_empty(db: Db) -> list[str]:
    found = db.execute("SELECT name FROM cronledger_internal.analyzed_while_empty()").fetchall()
    return [row["name"] for row in found]


def test_statistics_of_empty_tables_are_removed_and_full_ones_are_analyzed(
    db: Db, other: Db
) -> None:
    maintain(db)
    db.execute("ANALYZE cronledger.executions, cronledger.schedules")
    names = analyzed_while_empty(db)
    assert "schedules" in names
    assert len(names) == len(bounds(db)) + 1  # all partitions, and schedules
    row = execution(db)
    name = partition_of_the_execution(db)
    resets = [("reset", empty) for empty in names if empty != name]
    with other.transaction():  # before PostgreSQL 18 this is in the way, and is not waited for
        other.execute("SELECT FROM cronledger.executions, cronledger.schedules")
        analyzed = [("analyzed", name)]
        assert maintain_existing(db) in (analyzed, analyzed + resets)
    assert value(db, "SELECT reltuples FROM pg_class WHERE relname = %s", name) == 1
    assert maintain_existing(db) in ([], resets)
    assert analyzed_while_empty(db) == []
    assert maintain_existing(db) == []
    assert value(db, "SELECT id FROM cronledger.executions") == row["id"]


def test_skips_behind_retention_are_pruned_and_pruned_through_never_goes_back(db: Db) -> None:
    """A skip stays for as long as one of its plan_times has to be accounted for."""
    pruned = "SELECT cronledger.pruned_through()"
    at = now(db)
    for first, last in ((91, 91), (100, 80)):
        skip(db, at - first * DAY, at - last * DAY, first - last + 1)
    assert value(db, pruned) is None
    assert maintain_existing(db) == [("pruned", "1 skips")]
    assert value(db, "SELECT count FROM cronledger.skips") == 21
    assert maintain_existing(db, retention="79 days") == [("pruned", "1 skips")]
    through = value(db, pruned)
    assert at - 80 * DAY <= through < now(db) - 79 * DAY
    for earlier in (at - 90 * DAY, None):
        db.execute("SELECT cronledger_internal.record_pruned(%s)", [earlier])
        assert value(db, pruned) == through

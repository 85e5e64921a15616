"""Operator functions and roles."""

import uuid
from collections.abc import Iterable
from datetime import timedelta
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from cronledger.ledger.migrate import directory, migrations
from tests.db.support.rows import (
    Db,
    execution,
    job,
    now,
    one,
    runner,
    start_blocked,
    travel,
    value,
)
from tests.waiting import PATIENCE

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
NOT_NOW = errors.ObjectNotInPrerequisiteState


def call(db: Db, function: str, *arguments: Any, **named: Any) -> Any:
    """What `cronledger.function(...)` answers."""
    parts: list[sql.Composable] = [sql.Literal(argument) for argument in arguments]
    parts += [
        sql.SQL("{} => {}").format(sql.Identifier(name), sql.Literal(argument))
        for name, argument in named.items()
    ]
    statement = sql.SQL("SELECT cronledger.{}({})").format(
        sql.Identifier(function), sql.SQL(", ").join(parts)
    )
    return value(db, statement)


def row(db: Db, execution_id: int) -> dict[str, Any]:
    return one(db.execute("SELECT * FROM cronledger.executions WHERE id = %s", [execution_id]))


def hears(db: Db, payload: str) -> bool:
    """Whether the listening connection is told this, sooner or later."""
    return any(notification.payload == payload for notification in db.notifies(timeout=PATIENCE))


def unparted(db: Db) -> None:
    for part in db.execute("SELECT name FROM cronledger.partitions()").fetchall():
        db.execute(sql.SQL("DROP TABLE cronledger.{}").format(sql.Identifier(part["name"])))


def state_of(db: Db, name: str = "job") -> str:
    found = value(
        db,
        "SELECT state FROM cronledger.job_revisions WHERE job_name = %s"
        " ORDER BY revision DESC LIMIT 1",
        name,
    )
    return str(found)


# trigger


def test_trigger_makes_a_pending_execution_due_now(db: Db, other: Db) -> None:
    job(db, payload='{"a": 1}', max_attempts=4, queue="q", schedule_delay="1 h", jitter="1 h")
    db.execute("UPDATE cronledger.jobs SET description = 'x', grace = '1 s'")
    other.execute("LISTEN cronledger")
    before = now(db)
    made = row(db, call(db, "trigger", "job", requested_by="alice"))
    assert before < made["plan_time"] < now(db)
    assert made["plan_time"] == made["due_at"] == made["next_attempt_at"]
    wanted = {
        "status": "PENDING", "trigger": "manual", "attempt": 0, "max_attempts": 4, "revision": 2,
        "queue": "q", "payload": {"a": 1}, "requested_by": "alice",
    }  # fmt: skip
    assert {name: made[name] for name in wanted} == wanted
    assert hears(other, "pending")


def test_trigger_takes_a_payload_and_a_scope_and_leaves_the_schedules_alone(db: Db) -> None:
    job(db, payload="1", scope_kind="tenant", scopes=["a", "b"])
    before = db.execute("SELECT * FROM cronledger.schedules").fetchall()
    made = row(db, call(db, "trigger", "job", "tenant", "b", "2"))
    assert (made["scope_kind"], made["scope_id"], made["payload"]) == ("tenant", "b", 2)
    assert made["requested_by"] == value(db, "SELECT session_user")
    assert db.execute("SELECT * FROM cronledger.schedules").fetchall() == before


def test_triggered_plan_times_differ_and_are_those_of_no_schedule_and_no_message(db: Db) -> None:
    job(db)
    frozen = now(db).replace(microsecond=0)
    db.execute(
        sql.SQL(
            "CREATE OR REPLACE FUNCTION cronledger.db_clock() RETURNS timestamptz"
            " LANGUAGE sql VOLATILE AS $$ SELECT {}::timestamptz $$"
        ).format(sql.Literal(frozen))
    )
    made = [row(db, call(db, "trigger", "job"))["plan_time"] for _ in range(3)]
    assert made == [frozen + timedelta(microseconds=n) for n in (1, 3, 5)]


def test_unknown_jobs_scopes_queues_and_executions_are_refused(db: Db) -> None:
    job(db)
    unknown: dict[str, tuple[tuple[Any, ...], ...]] = {
        "job 'nothing' does not exist": (
            ("trigger", "nothing"), ("pause", "nothing"), ("resume", "nothing"),
            ("retire", "nothing"),
        ),
        "job 'job' has no scope tenant/x": (("trigger", "job", "tenant", "x"),),
        "queue defualt: no job and no runner uses it": (
            ("pause_queue", "defualt"), ("resume_queue", "defualt"), ("limit_queue", "defualt"),
        ),
        "execution 17 does not exist": (("cancel", 17), ("retry", 17)),
    }  # fmt: skip
    for message, calls in unknown.items():
        for function, *arguments in calls:
            with pytest.raises(errors.NoDataFound, match=message) as caught:
                call(db, function, *arguments)
            if function == "trigger":
                assert "job_status" in str(caught.value.diag.message_hint)


def test_trigger_refuses_a_retired_job_and_scope_even_if_forced(db: Db) -> None:
    job(db)
    call(db, "retire", "job")
    job(db, "other", scope_kind="tenant", scopes=["a", "b"])
    db.execute("UPDATE cronledger.jobs SET scopes = '{a}' WHERE name = 'other'")
    for force in (False, True):
        with pytest.raises(NOT_NOW, match="job job: it is retired"):
            call(db, "trigger", "job", force=force)
        with pytest.raises(NOT_NOW, match="job other: its scope tenant/b is retired"):
            call(db, "trigger", "other", "tenant", "b", force=force)
    db.execute("UPDATE cronledger.jobs SET scopes = '{a,b}' WHERE name = 'other'")
    assert call(db, "trigger", "other", "tenant", "b")


def test_trigger_refuses_a_paused_job_and_queue_unless_forced(db: Db) -> None:
    job(db)
    call(db, "pause", "job", "for a while")
    with pytest.raises(NOT_NOW, match="job job: it is paused since") as caught:
        call(db, "trigger", "job")
    assert caught.value.diag.message_detail == "for a while"
    assert "force" in str(caught.value.diag.message_hint)
    made = row(db, call(db, "trigger", "job", force=True))
    paused_at = value(db, "SELECT paused_at FROM cronledger.jobs")
    assert made["next_attempt_at"] > paused_at  # by this a claim knows that it was forced
    call(db, "resume", "job")
    call(db, "pause_queue", "default")
    with pytest.raises(NOT_NOW, match="job job: its queue default is paused since"):
        call(db, "trigger", "job")
    assert call(db, "trigger", "job", force=True)


def test_a_pause_that_has_ended_refuses_no_trigger_and_the_next_pause_is_a_new_one(db: Db) -> None:
    job(db)
    call(db, "pause", "job", until=now(db) + MINUTE)
    travel(db, HOUR)
    assert call(db, "trigger", "job")
    before = now(db)
    assert call(db, "pause", "job") is True
    assert value(db, "SELECT paused_at FROM cronledger.jobs") > before
    assert value(db, "SELECT max(effective_from) FROM cronledger.job_revisions") > before


def test_overlap_decides_about_a_trigger_beside_a_running_execution(db: Db) -> None:
    running = {}
    for overlap in ("skip", "wait", "allow", "replace"):
        job(db, overlap, overlap=overlap)
        running[overlap] = execution(db, "RUNNING", overlap)["id"]
    with pytest.raises(NOT_NOW, match=f"execution {running['skip']} of global/global is RUNNING"):
        call(db, "trigger", "skip", force=True)
    for overlap in ("wait", "allow", "replace"):
        made = row(db, call(db, "trigger", overlap, requested_by="alice"))
        assert made["status"] == "PENDING"
        asked = row(db, running[overlap])
        assert asked["status"] == "RUNNING"
        assert asked["cancel_requested_by"] == ("alice" if overlap == "replace" else None)
        assert (asked["cancel_requested_at"] is not None) == (overlap == "replace")


def test_trigger_reports_a_missing_partition(db: Db) -> None:
    job(db)
    unparted(db)
    with pytest.raises(NOT_NOW, match="executions has no partition for plan_time") as caught:
        call(db, "trigger", "job")
    assert "maintain_partitions" in str(caught.value.diag.message_hint)


def test_trigger_that_waited_for_an_edit_sees_it_and_its_own_time(db: Db, other: Db) -> None:
    job(db, queue="old")
    with db.transaction():
        db.execute("UPDATE cronledger.jobs SET queue = 'new'")
        waiting = start_blocked(db, other, lambda: call(other, "trigger", "job"))
        edited = now(db)
    made = row(db, waiting.result(90))
    assert (made["queue"], made["revision"]) == ("new", 2)
    assert made["plan_time"] > edited


def test_trigger_that_waited_for_a_claim_sees_what_it_started(db: Db, other: Db) -> None:
    job(db)
    with db.transaction():
        db.execute("SELECT FROM cronledger.schedules FOR NO KEY UPDATE")
        waiting = start_blocked(db, other, lambda: call(other, "trigger", "job"))
        execution(db, "RUNNING")
    with pytest.raises(NOT_NOW, match="is RUNNING, and overlap is skip"):
        waiting.result(90)


# pause, resume, retire


def test_pause_and_resume(db: Db, other: Db) -> None:
    job(db)
    other.execute("LISTEN cronledger")
    until = now(db) + HOUR
    assert call(db, "pause", "job", "why", until, "alice") is True
    paused = one(db.execute("SELECT * FROM cronledger.jobs"))
    assert (paused["paused_by"], paused["paused_reason"]) == ("alice", "why")
    assert (paused["paused_until"], state_of(db)) == (until, "paused")
    assert hears(other, "jobs")

    assert call(db, "pause", "job", "because", requested_by="bob") is False
    again = one(db.execute("SELECT * FROM cronledger.jobs"))
    assert again["paused_at"] == paused["paused_at"]
    changed = (again["paused_by"], again["paused_reason"], again["paused_until"])
    assert changed == ("bob", "because", None)

    assert call(db, "resume", "job", "carol") is True
    assert state_of(db) == "active"
    assert call(db, "resume", "job") is False
    asked = db.execute("SELECT requested_by FROM cronledger.job_revisions ORDER BY revision")
    assert [r["requested_by"] for r in asked][1:] == ["alice", "bob", "carol"]


def test_a_pause_until_the_past_is_refused(db: Db) -> None:
    job(db)
    with pytest.raises(
        errors.InvalidParameterValue, match=r"job job: until .* is in the past"
    ) as caught:
        call(db, "pause", "job", until=now(db) - MINUTE)
    assert caught.value.diag.message_hint
    assert state_of(db) == "active"


def test_retire(db: Db) -> None:
    job(db)
    assert call(db, "retire", "job", "alice") is True
    assert state_of(db) == "retired"
    assert call(db, "retire", "job") is False
    with pytest.raises(NOT_NOW, match="job job: it is retired"):
        call(db, "pause", "job")


def test_pause_that_waited_begins_after_the_wait(db: Db, other: Db) -> None:
    job(db)
    with db.transaction():
        db.execute("SELECT FROM cronledger.schedules FOR NO KEY UPDATE")
        waiting = start_blocked(db, other, lambda: call(other, "pause", "job"))
        claimed_until = now(db)
    assert waiting.result(90) is True
    assert value(db, "SELECT max(effective_from) FROM cronledger.job_revisions") > claimed_until


# Queues


def test_pause_and_resume_a_queue(db: Db, other: Db) -> None:
    runner(db, queues=["slow"])  # no job uses it
    assert call(db, "pause_queue", "slow") is True
    assert call(db, "resume_queue", "slow") is True
    job(db)
    other.execute("LISTEN cronledger")
    assert call(db, "pause_queue", "default", "why", "alice") is True
    assert call(db, "pause_queue", "default", "because", "bob") is False
    queue = one(db.execute("SELECT * FROM cronledger.queues WHERE name = 'default'"))
    assert (queue["paused_by"], queue["paused_reason"]) == ("bob", "because")
    assert call(db, "resume_queue", "default") is True
    assert hears(other, "queues")
    assert call(db, "resume_queue", "default") is False
    assert not db.execute("SELECT FROM cronledger.queues WHERE paused_at IS NOT NULL").fetchall()


def test_limit_a_queue(db: Db, other: Db) -> None:
    job(db)
    other.execute("LISTEN cronledger")
    assert call(db, "limit_queue", "default", 2) is None
    assert hears(other, "queues")
    assert call(db, "limit_queue", "default", 5) == 2
    assert value(db, "SELECT max_running FROM cronledger.queues") == 5
    for wrong in (0, -1):
        with pytest.raises(errors.InvalidParameterValue, match=f"max_running {wrong} is less"):
            call(db, "limit_queue", "default", wrong)
    assert call(db, "limit_queue", "default") == 5
    assert value(db, "SELECT max_running FROM cronledger.queues") is None


# cancel


def test_cancel_ends_a_waiting_execution_and_leaves_an_ended_one(db: Db) -> None:
    for status in ("PENDING", "FAILED"):
        at = now(db)
        waiting = execution(db, status, plan_time=at, next_attempt_at=at)
        assert call(db, "cancel", waiting["id"], "alice") == "cancelled"
        ended = row(db, waiting["id"])
        assert (ended["status"], ended["next_attempt_at"]) == ("CANCELLED", None)
        assert (ended["cancel_requested_by"], ended["error_code"]) == (
            "alice", waiting["error_code"],
        )  # fmt: skip
        assert ended["finished_at"] is not None
        assert call(db, "cancel", waiting["id"]) == "already_finished"
    for status in ("SUCCESS", "FAILED", "CANCELLED"):
        ended = execution(db, status, plan_time=now(db))
        assert call(db, "cancel", ended["id"]) == "already_finished"
        assert row(db, ended["id"]) == ended


def test_cancel_requests_the_end_of_a_running_execution(db: Db, other: Db) -> None:
    other.execute("LISTEN cronledger")
    running = execution(db, "RUNNING")
    assert call(db, "cancel", running["id"], "alice") == "requested"
    assert hears(other, "cancel")
    first = row(db, running["id"])
    assert (first["status"], first["cancel_requested_by"]) == ("RUNNING", "alice")
    assert first["lease_token"] == running["lease_token"]
    assert call(db, "cancel", running["id"], "bob") == "requested"
    again = row(db, running["id"])
    assert again["cancel_requested_by"] == "alice"
    assert again["cancel_requested_at"] == first["cancel_requested_at"]


def test_cancel_returns_busy_while_the_row_is_locked(db: Db, other: Db) -> None:
    waiting = execution(db, "PENDING")
    with other.transaction():
        other.execute("SELECT FROM cronledger.executions FOR NO KEY UPDATE")
        assert call(db, "cancel", waiting["id"]) == "busy"
    assert row(db, waiting["id"]) == waiting
    assert call(db, "cancel", waiting["id"]) == "cancelled"


# retry


def test_retry_gives_one_more_attempt_or_brings_a_planned_one_forward(db: Db, other: Db) -> None:
    job(db)
    other.execute("LISTEN cronledger")
    failed = execution(db, "FAILED", attempt=3, cancel_requested_at=now(db))
    before = now(db)
    assert call(db, "retry", failed["id"], requested_by="alice") == "retried"
    again = row(db, failed["id"])
    assert (again["status"], again["error_code"]) == ("FAILED", "boom")
    assert (again["attempt"], again["max_attempts"], again["requested_by"]) == (3, 4, None)
    assert again["cancel_requested_at"] is None
    assert before < again["next_attempt_at"] < now(db)
    assert hears(other, "pending")
    db.execute("UPDATE cronledger.executions SET next_attempt_at = next_attempt_at + '1 hour'")
    assert call(db, "retry", failed["id"]) == "brought_forward"
    again = row(db, failed["id"])
    assert again["next_attempt_at"] < now(db)
    assert again["max_attempts"] == 4


def test_retry_of_a_cancelled_execution(db: Db) -> None:
    """I8: one that had not started keeps its due_at."""
    job(db)
    ended = execution(db, "CANCELLED", cancel_requested_at=now(db))
    assert call(db, "retry", ended["id"]) == "retried"
    again = row(db, ended["id"])
    assert (again["status"], again["error_code"]) == ("FAILED", "cancelled")
    assert again["next_attempt_at"] is not None
    waiting = execution(db, "PENDING", plan_time=now(db), due_at=now(db) + HOUR, max_attempts=1)
    call(db, "cancel", waiting["id"])
    assert call(db, "retry", waiting["id"], requested_by="bob") == "retried"
    again = row(db, waiting["id"])
    changed = {name for name in waiting if waiting[name] != again[name]}
    assert changed == {"updated_at", "changed_xact"}


def test_retry_refuses_what_has_not_failed(db: Db) -> None:
    """I4: a SUCCESS is never overwritten."""
    job(db)
    for status in ("SUCCESS", "RUNNING", "PENDING"):
        found = execution(db, status, plan_time=now(db))
        for force in (False, True):
            with pytest.raises(NOT_NOW, match=f"it is {status}; only FAILED") as caught:
                call(db, "retry", found["id"], force)
            assert caught.value.diag.message_hint
        assert row(db, found["id"]) == found


def test_retry_refuses_an_unknown_end_unless_forced(db: Db) -> None:
    """I6: no attempt starts while the end of an earlier one is unknown."""
    job(db)
    for status, code in product(("FAILED", "CANCELLED"), ("stale_timeout", "shutdown")):
        found = execution(db, status, error_code=code, plan_time=now(db))
        with pytest.raises(NOT_NOW, match=rf"the end of attempt 1 is unknown \({code}\)") as caught:
            call(db, "retry", found["id"])
        assert "r1" in str(caught.value.diag.message_detail)
        assert "force" in str(caught.value.diag.message_hint)
        assert row(db, found["id"]) == found
        assert call(db, "retry", found["id"], force=True) == "retried"
        assert row(db, found["id"])["error_code"] == code
    db.execute("UPDATE cronledger.jobs SET allow_stale_reentry = true")
    found = execution(db, "FAILED", error_code="stale_timeout", plan_time=now(db))
    assert call(db, "retry", found["id"]) == "retried"


def test_retry_refuses_a_job_that_is_gone(db: Db) -> None:
    job(db)
    found = execution(db, "FAILED")
    call(db, "retire", "job")
    with pytest.raises(NOT_NOW, match="its job job is retired"):
        call(db, "retry", found["id"], force=True)
    db.execute("DELETE FROM cronledger.jobs")
    with pytest.raises(NOT_NOW, match="its job job is retired"):
        call(db, "retry", found["id"], force=True)


def test_retry_waits_for_the_schedule_and_judges_anew(db: Db, other: Db) -> None:
    job(db)
    found = execution(db, "FAILED", next_attempt_at=now(db))
    with db.transaction():
        db.execute("SELECT FROM cronledger.schedules FOR NO KEY UPDATE")
        waiting = start_blocked(db, other, lambda: call(other, "retry", found["id"]))
        db.execute(
            "UPDATE cronledger.executions SET status = 'SUCCESS', next_attempt_at = NULL,"
            " error_code = NULL"
        )
    with pytest.raises(NOT_NOW, match="it is SUCCESS"):
        waiting.result(90)


# assert_lease


def test_assert_lease_passes_the_holder_alone(db: Db) -> None:
    """I3: the token of an ended execution is worth nothing."""
    running = execution(db, "RUNNING")
    assert call(db, "assert_lease", running["id"], running["lease_token"]) in (None, "")
    ended = [execution(db, x, plan_time=now(db)) for x in ("SUCCESS", "FAILED", "CANCELLED")]
    for arguments in (
        (running["id"], uuid.uuid4()), (17, running["lease_token"]),
        *((found["id"], found["lease_token"]) for found in ended),
    ):  # fmt: skip
        with pytest.raises(psycopg.Error) as caught:
            call(db, "assert_lease", *arguments)
        assert caught.value.sqlstate == "CL001"
        assert f"execution {arguments[0]}: its lease is lost" in str(caught.value)


def test_assert_lease_that_waited_for_a_thief_is_refused(db: Db, other: Db) -> None:
    running = execution(db, "RUNNING")
    arguments = (running["id"], running["lease_token"])
    with db.transaction():
        db.execute("SELECT FROM cronledger.executions FOR UPDATE")
        waiting = start_blocked(db, other, lambda: call(other, "assert_lease", *arguments))
        db.execute("UPDATE cronledger.executions SET lease_token = gen_random_uuid()")
    with pytest.raises(psycopg.Error) as caught:
        waiting.result(90)
    assert caught.value.sqlstate == "CL001"


# Roles

VIEWS = (
    "ledger", "job_status", "running", "overdue", "recent_failures", "upcoming", "lateness",
    "runner_status", "crashes", "attempts", "job_history", "violations",
)  # fmt: skip
TABLES = (
    "jobs", "job_revisions", "queues", "schedules", "executions", "skips", "runners", "sources",
    "identity",
)  # fmt: skip
VIEWER, OPERATOR, RUNNER = "cronledger_viewer", "cronledger_operator", "cronledger_runner"


def become(db: Db, role: str) -> None:
    db.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))


def read(db: Db, relation: str) -> list[Any]:
    found = db.execute(
        sql.SQL("SELECT v::text FROM cronledger.{} v").format(sql.Identifier(relation))
    )
    return found.fetchall()


def refused(db: Db, role: str, statements: Iterable[str]) -> None:
    become(db, role)
    for statement in statements:
        with pytest.raises(errors.InsufficientPrivilege):
            db.execute(statement.encode())
    db.execute("RESET ROLE")


def test_every_role_reads_every_view_and_people_read_no_table(db: Db) -> None:
    job(db)
    execution(db, "RUNNING")
    for role in (VIEWER, OPERATOR, RUNNER):
        become(db, role)
        seen = {view for view in VIEWS if read(db, view)}
        assert seen >= {"ledger", "job_status", "running", "attempts"}
        db.execute("RESET ROLE")
    tables = [f"SELECT FROM cronledger.{table}" for table in TABLES]
    for role in (VIEWER, OPERATOR):
        refused(db, role, [*tables, "UPDATE cronledger.jobs SET schedule = '@daily'"])


CALLS: list[tuple[str, list[Any]]] = [
    ("trigger", ["job"]), ("pause", ["job"]), ("resume", ["job"]),
    ("pause_queue", ["default"]), ("resume_queue", ["default"]),
    ("cancel", [0]), ("retry", [0]), ("retire", ["job"]),
]  # fmt: skip


def test_operators_call_the_functions_and_leave_their_name(db: Db) -> None:
    me = value(db, "SELECT session_user")
    job(db)
    failed = execution(db, "FAILED")["id"]
    become(db, OPERATOR)
    for function, arguments in CALLS:
        call(db, function, *(failed if argument == 0 else argument for argument in arguments))
    db.execute("RESET ROLE")
    asked = db.execute("SELECT DISTINCT requested_by FROM cronledger.job_revisions").fetchall()
    assert asked == [{"requested_by": me}]
    assert state_of(db) == "retired"


def test_viewers_call_no_function_of_operators_and_people_do_not_maintain(db: Db) -> None:
    job(db)
    become(db, VIEWER)
    for function, arguments in CALLS:
        with pytest.raises(errors.InsufficientPrivilege):
            call(db, function, *arguments)
    for role in (VIEWER, OPERATOR):
        refused(db, role, [
            "SELECT * FROM cronledger.maintain_partitions()",
            "SELECT * FROM cronledger_internal.set_scopes('job', 'tenant', '{a}')",
            "SELECT cronledger_internal.drop_partition('x')",
            "SELECT cronledger_internal.cancel_waiting('job', 'me')",
        ])  # fmt: skip


def test_a_runner_does_its_work(db: Db) -> None:
    become(db, RUNNER)
    job(db, scope_kind="tenant")
    db.execute("SELECT * FROM cronledger_internal.set_scopes('job', 'tenant', '{a}')")
    db.execute("UPDATE cronledger.jobs SET schedule = '@daily', spec_error = 'x'")
    db.execute("SELECT FROM cronledger.schedules FOR NO KEY UPDATE SKIP LOCKED")
    db.execute("SELECT FROM cronledger.queues FOR NO KEY UPDATE SKIP LOCKED")
    running = execution(db, "RUNNING")
    call(db, "assert_lease", running["id"], running["lease_token"])
    db.execute("UPDATE cronledger.executions SET heartbeat_at = cronledger.db_now()")
    runner(db)
    db.execute("DELETE FROM cronledger.runners")
    travel_as_owner(db)
    made = db.execute("SELECT * FROM cronledger.maintain_partitions()").fetchall()
    assert {r["action"] for r in made} >= {"made"}
    for table in TABLES:
        read(db, table)
    assert len(db.execute("SELECT FROM cronledger.job_revisions").fetchall()) == 2


def travel_as_owner(db: Db) -> None:
    role = value(db, "SELECT current_user")
    db.execute("RESET ROLE")
    travel(db, timedelta(days=10))
    become(db, role)


def test_a_runner_changes_neither_structure_nor_history(db: Db) -> None:
    refused(db, RUNNER, [
        "CREATE TABLE cronledger.mine ()",
        "ALTER TABLE cronledger.jobs ADD mine int",
        "DROP VIEW cronledger.ledger",
        "TRUNCATE cronledger.executions",
        "DELETE FROM cronledger.executions",
        "DELETE FROM cronledger.jobs",
        "DELETE FROM cronledger.skips",
        "UPDATE cronledger.job_revisions SET state = 'active'",
        "INSERT INTO cronledger.job_revisions (job_name, revision, effective_from, state,"
        " definition) VALUES ('job', 1, '-infinity', 'active', '{}')",
        "UPDATE cronledger.identity SET timeline = 1",
        "SELECT cronledger_internal.drop_partition('x')",
    ])  # fmt: skip


def test_who_may_write_jobs_need_not_write_their_history(db: Db) -> None:
    """INSERT and UPDATE on jobs are enough to add or edit a job."""
    with db.transaction(force_rollback=True):
        db.execute("CREATE ROLE cronledger_test_app")
        db.execute("GRANT USAGE ON SCHEMA cronledger TO cronledger_test_app")
        db.execute("GRANT SELECT, INSERT, UPDATE ON cronledger.jobs TO cronledger_test_app")
        become(db, "cronledger_test_app")
        job(db)
        db.execute("UPDATE cronledger.jobs SET schedule = '@daily'")
        db.execute("RESET ROLE")
        assert len(db.execute("SELECT FROM cronledger.job_revisions").fetchall()) == 2


def test_without_the_right_to_make_roles_all_else_is_made(db: Db) -> None:
    """The names are other ones here: the roles belong to the server, and other tests use them."""
    notices: list[str] = []
    db.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    name = f"cronledger_test_{uuid.uuid4().hex[:8]}"
    with db.transaction(force_rollback=True):
        db.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(name)))
        for command in owned_by(db, name):
            db.execute(command)
        become(db, name)
        db.execute(with_other_roles("cronledger_absent_").encode())
        db.execute("SELECT cronledger.grant_roles()")
    assert notices == [
        f"role cronledger_absent_{who} does not exist, and {name} may not create roles"
        for who in ("operator", "runner", "viewer")
    ]


def test_every_body_is_valid(db: Db) -> None:
    """`migrate` checks none, because a function may call one that is created later."""
    (text,) = (script.text for script in migrations() if script.phase == "repeated")
    checked = text.replace("check_function_bodies = off", "check_function_bodies = on")
    assert checked != text
    with db.transaction(force_rollback=True):
        db.execute(checked.encode())


def with_other_roles(family: str) -> str:
    """What decides and grants rights, for roles of other names."""
    files = sorted((directory() / "functions" / "rights").iterdir())
    text = "\n".join(file.read_text("utf-8") for file in files)
    return text.replace("cronledger_", family).replace("{schema}", "cronledger")


def owned_by(db: Db, owner: str) -> list[sql.Composed]:
    """Statements that make everything in the schema the owner's."""
    found = db.execute(
        "SELECT 'FUNCTION ' || oid::regprocedure AS what FROM pg_proc"
        " WHERE pronamespace::regnamespace::text ~ '^cronledger' UNION ALL"
        " SELECT 'SCHEMA cronledger' UNION ALL SELECT 'SCHEMA cronledger_internal' UNION ALL"
        " SELECT 'TABLE ' || oid::regclass FROM pg_class"
        " WHERE relnamespace = 'cronledger'::regnamespace AND relkind IN ('r', 'p', 'v', 'S')"
    ).fetchall()
    return [
        sql.SQL("ALTER {} OWNER TO {}").format(sql.SQL(r["what"]), sql.Identifier(owner))
        for r in found
    ]


def test_roles_that_another_migration_makes_meanwhile_are_taken(db: Db, other: Db) -> None:
    family = f"cronledger_{uuid.uuid4().hex[:8]}_"
    db.execute(with_other_roles(family).encode())
    names = [sql.Identifier(f"{family}{who}") for who in ("viewer", "operator", "runner")]
    try:
        with db.transaction():
            for name in names:
                db.execute(sql.SQL("CREATE ROLE {}").format(name))
            granting = "SELECT cronledger.grant_roles()"
            waiting = start_blocked(db, other, lambda: other.execute(granting))
        waiting.result(90)
        role = f"{family}viewer"
        assert value(db, "SELECT has_schema_privilege(%s, 'cronledger', 'USAGE')", role)
    finally:
        for name in names:
            db.execute(sql.SQL("DROP OWNED BY {}").format(name))
            db.execute(sql.SQL("DROP ROLE {}").format(name))

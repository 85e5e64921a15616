"""Operator functions and roles."""

import uuid
from datetime import timedelta
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from cronledger.ledger.migrate import directory, migrations
from tests.db.support.engine import HOUR, MINUTE
from tests.db.support.rows import Db, execution, job, now, one, runner, start_blocked, travel, value
from tests.waiting import PATIENCE

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
            ("retire", "nothing"), ("is_dirty", "nothing"),
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


INVALID, MISSING = errors.InvalidParameterValue, errors.NoDataFound
BAD_INPUT: list[tuple[str, type[psycopg.Error], str]] = [
    ("claim_next('default', 'w', 0)", INVALID, "n = 0"),
    ("claim_next('default', '', 1)", INVALID, "runner = ,"),
    ("claim_next(NULL, 'w', 1)", INVALID, "queue = <NULL>"),
    ("claim('nobody', 'w')", MISSING, "nobody"),
    ("claim('job', 'w', 'acme')", MISSING, "acme"),
    ("claim('job', '')", INVALID, "runner"),
    ("fail(1, gen_random_uuid(), '', 'no')", INVALID, "code = "),
    ("fail(1, gen_random_uuid(), 'stale_timeout', 'no')", INVALID, "stale_timeout"),
    ("fail(1, gen_random_uuid(), 'x', 'no', retry_after => '-1 s')", INVALID, "retry_after"),
    ("take_results('default', 0)", INVALID, "n is 0"),
    ("take_results('defualt', 1)", MISSING, "defualt"),
    ("enqueue_many('job')", INVALID, "have no elements"),
    ("enqueue_many('job', '{null, null}', '{a}')", INVALID, "2 and 1 elements"),
    ("enqueue_many('job', array_fill(NULL::jsonb, '{100001}'))", INVALID, "100001"),
    ("enqueue_many('job', ARRAY[to_jsonb(repeat('x', 70000))])", INVALID, "bytes"),
    ("enqueue_many('nobody', '{null}')", MISSING, "nobody"),
    ("enqueue_many('job', '{null}', scope_ids => '{null}')", INVALID, "NULL"),
    ("enqueue_many('fixed', '{null, null}', scope_ids => '{a, b}')", MISSING, "b"),
    ("end_pause(99)", MISSING, "pause 99 does not exist"),
    ("change_pause(99, reason => 'x')", MISSING, "pause 99 does not exist"),
    ("maintain_partitions('1 minute')", INVALID, "width 00:01:00 is less than an hour"),
    ("maintain_partitions('7 days', '-1 day')", INVALID, "ahead -1 days is less than a day"),
    ("record_refusal('drop', '{}', 'no')", INVALID, "verb drop is not an operator function"),
    ("record_refusal(NULL, '{}', 'no')", INVALID, "verb NULL is not an operator function"),
    ("record_refusal('pause', '[]', 'no')", INVALID, "arguments is not an object"),
    ("record_refusal('pause', '{}', NULL)", INVALID, "error <NULL>"),
]


def test_bad_input_is_refused_as_a_whole_with_a_hint(db: Db) -> None:
    job(db, handler="external", schedule=None)
    job(db, "fixed", handler="external", schedule=None, scope_kind="tenant", scopes=["a"])
    for text, error, names in BAD_INPUT:
        with pytest.raises(error, match=names) as raised:
            db.execute(f"SELECT * FROM cronledger.{text}".encode())
        assert raised.value.diag.message_hint, text
    assert db.execute("SELECT FROM cronledger.executions").fetchall() == []


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
    with pytest.raises(NOT_NOW, match="job job: it has been paused since") as caught:
        call(db, "trigger", "job")
    assert caught.value.diag.message_detail == "for a while"
    assert "force" in str(caught.value.diag.message_hint)
    made = row(db, call(db, "trigger", "job", force=True))
    paused_at = value(db, "SELECT paused_at FROM cronledger.jobs")
    assert made["next_attempt_at"] > paused_at  # by this a claim knows that it was forced
    call(db, "resume", "job")
    call(db, "pause_queue", "default")
    with pytest.raises(NOT_NOW, match="job job: its queue default has been paused since"):
        call(db, "trigger", "job")
    assert call(db, "trigger", "job", force=True)


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
    with pytest.raises(
        errors.InvalidParameterValue, match=r"job job: until .* is in the past"
    ) as e:
        call(db, "pause", "job", until=now(db) - MINUTE)
    assert e.value.diag.message_hint
    assert state_of(db) == "active"
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


def test_retire(db: Db) -> None:
    job(db)
    assert call(db, "retire", "job", "alice") is True
    assert state_of(db) == "retired"
    assert call(db, "retire", "job") is False
    with pytest.raises(NOT_NOW, match="job job: it is retired"):
        call(db, "pause", "job")


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
    codes = ("stale_timeout", "shutdown", "not_ended")
    for status, code in product(("FAILED", "CANCELLED"), codes):
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


def become(db: Db, role: str) -> None:
    db.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))


CALLS: dict[str, list[str]] = {
    "viewer operator runner": [
        *(f"SELECT v::text FROM cronledger.{view} v" for view in VIEWS),
        "SELECT cronledger.is_dirty('job')",
        "SELECT cronledger.group_status(gen_random_uuid())",
    ],
    "operator": [
        "SELECT cronledger.pause_queue('default')",
        "SELECT cronledger.resume_queue('default')",
        "SELECT cronledger.accept_database(false)",
    ],
    "operator runner": [
        "SELECT cronledger.trigger('job')",
        "SELECT cronledger.enqueue('job')",
        "SELECT cronledger.pause('job')",
        "SELECT cronledger.resume('job')",
        "SELECT cronledger.retire('job')",
        "SELECT cronledger.cancel(max(id)) FROM cronledger.ledger",
        "SELECT cronledger.retry(min(id)) FROM cronledger.ledger",
        "SELECT cronledger.take_results('default', 1)",
    ],
    "runner": [
        *(f"SELECT FROM cronledger.{table}" for table in TABLES),
        "INSERT INTO cronledger.jobs (name, handler, target) VALUES ('new', 'external', '{}')",
        "UPDATE cronledger.jobs SET schedule = '@daily', spec_error = 'x'",
        "SELECT FROM cronledger.schedules FOR NO KEY UPDATE SKIP LOCKED",
        "SELECT FROM cronledger.queues FOR NO KEY UPDATE SKIP LOCKED",
        "UPDATE cronledger.executions SET heartbeat_at = cronledger.db_now()",
        "DELETE FROM cronledger.runners",
        "SELECT cronledger.claim('outside', 'w')",
        "SELECT cronledger.maintain_partitions()",
        "SELECT cronledger_internal.settle_left_behind()",
        "SELECT cronledger_internal.set_scopes('tenants', 'tenant', '{a}')",
    ],
    "": [
        "CREATE TABLE cronledger.mine ()",
        "ALTER TABLE cronledger.jobs ADD mine int",
        "DROP VIEW cronledger.ledger",
        "TRUNCATE cronledger.executions",
        *(f"DELETE FROM cronledger.{table}" for table in ("executions", "jobs", "skips")),
        "UPDATE cronledger.job_revisions SET state = 'active'",
        "INSERT INTO cronledger.job_revisions (job_name, revision, effective_from, state,"
        " definition) VALUES ('job', 9, '-infinity', 'active', '{}')",
        "INSERT INTO cronledger.undated (job_name, at, revision)"
        " VALUES ('job', cronledger.db_now(), 1)",
        "UPDATE cronledger.identity SET timeline = 1",
        "SELECT cronledger_internal.drop_partition('x')",
        "SELECT cronledger_internal.cancel_waiting('job', 'me')",
    ],
}
"""The roles that may do it, and what they may do."""


def may(db: Db, role: str, statement: str) -> bool:
    try:
        with db.transaction(force_rollback=True):
            become(db, f"cronledger_{role}")
            db.execute(statement.encode())
            db.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except errors.InsufficientPrivilege:
        return False
    return True


@pytest.mark.long
def test_a_role_may_do_what_it_is_for_and_nothing_else(db: Db) -> None:
    job(db)
    job(db, "outside", handler="external", schedule=None)
    job(db, "tenants", scope_kind="tenant")
    execution(db, "FAILED")
    execution(db, "RUNNING", "outside")
    travel(db, timedelta(days=10))  # partitions are to be made
    for role in ("viewer", "operator", "runner"):
        for roles, statements in CALLS.items():
            for statement in statements:
                assert may(db, role, statement) is (role in roles), (role, statement)


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


def test_every_body_is_valid(db: Db) -> None:
    """`migrate` checks none, because a function may call one that is created later."""
    (text,) = (script.text for script in migrations() if script.phase == "repeated")
    checked = text.replace("check_function_bodies = off", "check_function_bodies = on")
    assert checked != text
    with db.transaction(force_rollback=True):
        db.execute(checked.encode())


@pytest.mark.parametrize(
    ("at", "text"),
    [
        ("2027-06-01 12:00:00.999999+02", "2027-06-01 10:00:00 UTC"),
        ("infinity", "infinity"),
        (None, None),
    ],
)
def test_an_instant_in_a_text_is_in_utc_in_every_session(
    db: Db, at: str | None, text: str | None
) -> None:
    db.execute("SET TimeZone = 'Asia/Tokyo'")
    assert value(db, "SELECT cronledger_internal.utc_text(%s::timestamptz)", at) == text


def with_other_roles(family: str) -> str:
    """What decides and grants rights, for roles of other names."""
    files = sorted((directory() / "functions" / "rights").iterdir())
    text = "\n".join(file.read_text("utf-8") for file in files)
    return text.replace("cronledger_", family).replace("{schema}", "cronledger")


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

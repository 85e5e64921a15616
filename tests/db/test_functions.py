"""Operator functions and roles."""

import uuid
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from cronledger.ledger.migrate import directory, migrations
from tests.db.support.engine import HOUR
from tests.db.support.rows import Db, execution, job, now, one, runner, start_blocked, value
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


def state_of(db: Db) -> Any:
    """The state of the newest revision of the only job."""
    return value(db, "SELECT state FROM cronledger.job_revisions ORDER BY revision DESC LIMIT 1")


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


INVALID, MISSING = errors.InvalidParameterValue, errors.NoDataFound
BAD_INPUT: list[tuple[str, type[psycopg.Error], str]] = [
    ("claim_next('default', 'w', 0)", INVALID, "n = 0"),
    ("claim_next(NULL, 'w', 1)", INVALID, "queue = <NULL>"),
    ("claim('nobody', 'w')", MISSING, "nobody"),
    ("claim('job', 'w', 'acme')", MISSING, "acme"),
    ("fail(1, gen_random_uuid(), 'stale_timeout', 'no')", INVALID, "stale_timeout"),
    ("fail(1, gen_random_uuid(), 'x', 'no', retry_after => '-1 s')", INVALID, "retry_after"),
    ("not_ready(1, gen_random_uuid(), '-1 min', 'no')", INVALID, "after = -00:01:00"),
    ("progress(1, gen_random_uuid(), -1)", INVALID, "invalid progress"),
    ("pause('job', until => '2001-01-01Z')", INVALID, "job job: until .* is in the past"),
    ("limit_queue('default', 0)", INVALID, "max_running 0 is less"),
    ("take_results('default', 0)", INVALID, "n is 0"),
    ("take_results('defualt', 1)", MISSING, "defualt"),
    ("enqueue_many('job')", INVALID, "have no elements"),
    ("enqueue_many('job', '{null, null}', '{a}')", INVALID, "2 and 1 elements"),
    ("enqueue_many('job', array_fill(NULL::jsonb, '{100001}'))", INVALID, "100001"),
    ("enqueue_many('job', ARRAY[to_jsonb(repeat('x', 70000))])", INVALID, "bytes"),
    ("enqueue_many('job', '{null}', scope_ids => '{null}')", INVALID, "NULL"),
    ("enqueue_many('fixed', '{null, null}', scope_ids => '{a, b}')", MISSING, "b"),
    ("trigger('nothing')", MISSING, "job 'nothing' does not exist"),
    ("retire('nothing')", MISSING, "job 'nothing' does not exist"),
    ("is_dirty('nothing')", MISSING, "job 'nothing' does not exist"),
    ("trigger('fixed', 'tenant', 'x')", MISSING, "job 'fixed' has no scope tenant/x"),
    ("pause_queue('defualt')", MISSING, "queue defualt: no job and no runner uses it"),
    ("cancel(17)", MISSING, "execution 17 does not exist"),
    ("retry(17)", MISSING, "execution 17 does not exist"),
    ("retry_many('{}')", INVALID, "execution_ids has 0 elements"),
    ("cancel_many('{1, NULL}')", INVALID, "execution_ids has NULL among its elements"),
    ("retry_many(array_fill(1, '{1001}')::bigint[])", INVALID, "execution_ids has 1001 elements"),
    ("plan_pause(NULL)", INVALID, "reason: it is empty"),
    ("plan_pause(repeat('x', 2001))", INVALID, "reason: it is longer than 2000"),
    ("plan_pause('x', queue => '')", INVALID, "queue: it is empty"),
    ("plan_pause('x', labels => '{}')", INVALID, "labels: it is not a JSON object"),
    ("plan_pause('x', job => 'nothing')", MISSING, "job 'nothing' does not exist"),
    ("plan_pause('x', '2000-01-01Z')", INVALID, "it is in the past"),
    ("plan_pause('x', 'infinity')", INVALID, "more than 100 years ahead"),
    ("plan_pause('x', until => '2000-01-01Z')", INVALID, "until 2000-01-01 .* is not after from"),
    ("plan_pause('x', until => '2300-01-01Z')", INVALID, "until 2300-01-01.*100 years ahead"),
    ("end_pause(99)", MISSING, "pause 99 does not exist"),
    ("skip('job', 'tomorrow', ' ')", INVALID, "job job: reason is empty"),
    ("skip('job', 'tomorrow', repeat('x', 1001))", INVALID, "1001 characters; the limit is 1000"),
    ("skip('job', NULL, 'x')", INVALID, "job job: plan_time is NULL"),
    ("skip('job', '1969-12-31Z', 'x')", INVALID, "1969-12-31 00:00:00 UTC is before 1970"),
    ("skip('job', 'tomorrow', 'x', 'infinity')", INVALID, "through infinity is more than 100"),
    ("skip('job', 'tomorrow', 'x', '2001-01-01Z')", INVALID, "through 2001-01-01 .* before"),
    ("skip('job', 'tomorrow', 'x', NULL, 'shard')", INVALID, "scope_kind shard is given without"),
    ("skip('fixed', 'tomorrow', 'x', scope_id => 'x')", MISSING, "has no scope tenant/x"),
    ("skip('gone', 'tomorrow', 'x')", NOT_NOW, "job gone: it is retired"),
    ("maintain_partitions('1 minute')", INVALID, "width 00:01:00 is less than an hour"),
    ("maintain_partitions('7 days', '-1 day')", INVALID, "ahead -1 days is less than a day"),
    ("record_refusal('drop', '{}', 'no')", INVALID, "verb drop is not an operator function"),
    ("record_refusal('pause', '[]', 'no')", INVALID, "arguments is not an object"),
    ("record_refusal('pause', '{}', NULL)", INVALID, "error <NULL>"),
]


def test_bad_input_is_refused_as_a_whole_with_a_hint(db: Db) -> None:
    job(db, handler="external", schedule=None)
    job(db, "fixed", handler="external", schedule=None, scope_kind="tenant", scopes=["a"])
    job(db, "gone", retired_at=now(db))
    for text, error, names in BAD_INPUT:
        with pytest.raises(error, match=names) as raised:
            db.execute(f"SELECT * FROM cronledger.{text}".encode())
        assert raised.value.diag.message_hint, text
    assert db.execute("SELECT FROM cronledger.executions").fetchall() == []


def test_trigger_refuses_a_retired_job_and_scope_even_if_forced(db: Db) -> None:
    job(db)
    assert call(db, "retire", "job") is True
    assert call(db, "retire", "job") is False
    with pytest.raises(NOT_NOW, match="job job: it is retired"):
        call(db, "pause", "job")
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


# cancel


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
    failed = execution(db, "FAILED", attempt=3)
    assert call(db, "retry", failed["id"]) == "retried"
    assert hears(other, "pending")
    db.execute("UPDATE cronledger.executions SET next_attempt_at = next_attempt_at + '1 hour'")
    assert call(db, "retry", failed["id"]) == "brought_forward"
    again = row(db, failed["id"])
    assert again["next_attempt_at"] < now(db)
    assert (again["attempt"], again["max_attempts"]) == (3, 4)


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


def test_who_may_write_jobs_need_not_write_their_history(db: Db) -> None:
    """INSERT and UPDATE on jobs are enough to add or edit a job."""
    with db.transaction(force_rollback=True):
        db.execute("CREATE ROLE cronledger_test_app")
        db.execute("GRANT USAGE ON SCHEMA cronledger TO cronledger_test_app")
        db.execute("GRANT SELECT, INSERT, UPDATE ON cronledger.jobs TO cronledger_test_app")
        db.execute("SET ROLE cronledger_test_app")
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


def test_an_instant_in_a_text_is_in_utc_in_every_session(db: Db) -> None:
    db.execute("SET TimeZone = 'Asia/Tokyo'")
    text = "SELECT cronledger_internal.utc_text(%s::timestamptz)"
    assert value(db, text, "2027-06-01 12:00:00.999999+02") == "2027-06-01 10:00:00 UTC"
    assert value(db, text, "infinity") == "infinity"
    assert value(db, text, None) is None


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

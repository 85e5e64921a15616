"""The view `violations` names what was planted and nothing else.

The stateful tests and the simulator find it empty after what the engine did."""

from datetime import datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.types.json import Jsonb

from cronledger.audit.accepted import ACCEPTABLE
from tests.db.support.engine import DAY, HOUR, MINUTE, SECOND
from tests.db.support.rows import (
    Db,
    execution,
    insert,
    job,
    now,
    one,
    runner,
    schedule,
    skip,
    start_blocked,
)


def violations(db: Db) -> list[tuple[str, datetime | None]]:
    found = db.execute("SELECT * FROM cronledger.violations ORDER BY kind, plan_time").fetchall()
    assert all(row["detail"] for row in found)
    return [(row["kind"], row["plan_time"]) for row in found]


def old_job(db: Db, name: str = "job", **columns: Any) -> datetime:
    """A job that has been as it is since the day before yesterday; return a whole hour since."""
    job(db, name, **columns)
    db.execute(
        "UPDATE cronledger.job_revisions SET effective_from = cronledger.db_now() - interval '2 d'"
        " WHERE job_name = %s", [name],
    )  # fmt: skip
    return (now(db) - 3 * HOUR).replace(minute=0, second=0, microsecond=0)


def past(number: int, start: datetime, code: str = "boom", **more: Any) -> dict[str, Any]:
    """An entry of `attempts`: a minute long, last seen after half of it."""
    made = {
        "attempt": number, "runner_id": "r1", "lease_token": str(uuid4()), "error_code": code,
        "started_at": start.isoformat(), "last_seen": (start + 30 * SECOND).isoformat(),
        "ended_at": (start + MINUTE).isoformat(), "error_msg": "it was so",
    }  # fmt: skip
    if code == "runner_crashed":
        made["ended_at"] = None
    return made | more


def attempted(db: Db, at: datetime, *codes: str, **columns: Any) -> None:
    """A SUCCESS of one second an hour after `at`, whose earlier attempts began at `at`."""
    entries = [past(n, at + (n - 1) * MINUTE, code) for n, code in enumerate(codes, 1)]
    row: dict[str, Any] = {
        "plan_time": at, "attempt": len(codes) + 1, "max_attempts": 9, "attempts": Jsonb(entries),
        "started_at": at + HOUR, "finished_at": at + HOUR + SECOND,
    }  # fmt: skip
    execution(db, **row | columns)


def test_doubled_by_a_skip_and_by_two_skips(db: Db) -> None:
    at = old_job(db)
    execution(db, plan_time=at)
    execution(db, plan_time=at + HOUR, trigger="backfill")
    skip(db, at - MINUTE, at + HOUR)
    assert violations(db) == [("doubled", at)]
    db.execute("DELETE FROM cronledger.executions")
    assert violations(db) == []
    skip(db, at + HOUR, at + 2 * HOUR)
    assert violations(db) == [("doubled", at + HOUR)]


def test_early(db: Db) -> None:
    at = old_job(db, max_attempts=2)
    execution(db, plan_time=at, started_at=at - SECOND)
    execution(db, plan_time=at + HOUR, attempt=2, attempts=Jsonb([past(1, at + HOUR - 5 * MINUTE)]))
    assert violations(db) == [("early", at), ("early", at + HOUR)]


def test_overlapping_in_the_past_of_an_earlier_attempt_and_now(db: Db) -> None:
    at = old_job(db, max_attempts=2)
    execution(db, plan_time=at, finished_at=at + HOUR + SECOND)
    execution(db, plan_time=at + HOUR)
    assert violations(db) == [("overlapping", at + HOUR)]
    db.execute("DELETE FROM cronledger.executions")
    attempted(db, at, "boom")
    execution(db, plan_time=at + 30 * SECOND, due_at=at, trigger="manual")
    assert violations(db) == [("overlapping", at + 30 * SECOND)]
    db.execute("DELETE FROM cronledger.executions")
    execution(db, "RUNNING", plan_time=at - 8 * DAY, started_at=at)  # however old it is
    execution(db, "RUNNING", plan_time=at + HOUR)
    assert violations(db) == [("overlapping", at + HOUR)]


def test_a_stolen_attempt_is_known_to_have_run_until_it_was_last_seen(db: Db) -> None:
    at = old_job(db, allow_stale_reentry=True)
    attempted(db, at, "runner_crashed")
    execution(db, plan_time=at + 29 * SECOND, trigger="manual")
    execution(db, plan_time=at + 31 * SECOND, trigger="manual")
    assert violations(db) == [("overlapping", at + 29 * SECOND)]
    db.execute("DELETE FROM cronledger.executions WHERE plan_time = %s", [at + 29 * SECOND])
    assert violations(db) == []


def test_overlap_is_judged_by_the_revision_in_force(db: Db) -> None:
    at = old_job(db, overlap="allow")
    execution(db, "RUNNING", plan_time=at)
    execution(db, "RUNNING", plan_time=at + HOUR)
    db.execute("UPDATE cronledger.jobs SET overlap = 'skip'")
    assert violations(db) == []
    execution(db, "RUNNING", plan_time=at + 2 * HOUR, started_at=now(db))
    assert violations(db) == [("overlapping", at + 2 * HOUR)]


def scoped(db: Db, at: datetime, *scopes: str, **columns: Any) -> None:
    for scope in scopes:
        execution(db, "RUNNING", plan_time=at, scope_kind="shard", scope_id=scope, **columns)


@pytest.mark.parametrize("of", ["job", "queue"])
def test_over_the_limit_by_runs_that_are_not_of_another_scheduler(db: Db, of: str) -> None:
    limit = 2 if of == "job" else None
    at = old_job(db, max_running=limit, scope_kind="shard", scopes=["a", "b", "c", "d"])
    if of == "queue":
        insert(db, "queues", name="default", max_running=2)
    scoped(db, at, "a", runner_id="observed")
    scoped(db, at, "b", "c")
    assert violations(db) == []
    scoped(db, at + HOUR, "d")
    assert violations(db) == [("over_limit", at + HOUR if of == "job" else None)]


def test_attempts_beyond_the_most(db: Db) -> None:
    at = old_job(db, max_attempts=2)
    attempted(db, at, "boom")
    attempted(db, at + HOUR / 4, "boom", "shutdown", "lease_lost", "not_started")
    attempted(db, at + HOUR / 2, "boom", "boom", requested_by="alice")
    assert violations(db) == []
    attempted(db, at + 3 * HOUR / 4, "boom", "boom")
    assert violations(db) == [("attempts", at + 3 * HOUR / 4)]
    retried(db, "backfill")
    assert violations(db) == []


def test_attempts_by_thieves(db: Db) -> None:
    at = old_job(db, allow_stale_reentry=True)
    attempted(db, at, *["runner_crashed"] * 2)
    assert violations(db) == []
    attempted(db, at + 90 * MINUTE, *["runner_crashed"] * 3)
    assert violations(db) == [("attempts", at + 90 * MINUTE)]


def test_a_token_that_comes_again(db: Db) -> None:
    at = old_job(db, max_attempts=2)
    token = uuid4()
    entry = past(1, at, lease_token=str(token))
    attempted(db, at, "boom", attempts=Jsonb([entry]), lease_token=token)
    assert violations(db) == [("attempts", at)]


def retried(db: Db, verb: str) -> None:
    """An earlier retry by hand of every execution."""
    db.execute(
        'INSERT INTO cronledger.operator_actions (at, "session_user", requested_by, verb,'
        " object_kind, job_name, execution_ids, outcome) SELECT cronledger.db_now(), 'r', 'ann',"
        " %s, 'job', e.job_name, array_agg(e.id), 'done' FROM cronledger.executions e"
        " GROUP BY e.job_name",
        [verb],
    )


def test_a_forced_retry_is_in_the_audit_trail(db: Db) -> None:
    at = old_job(db, max_attempts=3)
    attempted(db, at, "stale_timeout")
    retried(db, "cancel")
    assert violations(db) == [("unknown_end", at)]
    retried(db, "retry")
    assert violations(db) == []


def test_unknown_end(db: Db) -> None:
    at = old_job(db, max_attempts=3, overlap="allow")
    cases = [
        ("boom", None, False),
        ("shutdown", None, False),
        ("runner_crashed", "alice", True),
        ("stale_timeout", None, True),
        ("stale_timeout", "alice", False),  # retry(force => true)
    ]
    for n, (code, requested_by, _) in enumerate(cases):
        attempted(db, at + n * 5 * MINUTE, code, requested_by=requested_by)
    assert violations(db) == [
        ("unknown_end", at + n * 5 * MINUTE) for n, (*_, found) in enumerate(cases) if found
    ]
    db.execute("UPDATE cronledger.job_revisions SET definition = definition || "
               "'{\"allow_stale_reentry\": true}'")  # fmt: skip
    assert violations(db) == []


def test_a_lease_that_nobody_may_steal_in_a_pause_is_stale_after_it(db: Db) -> None:
    names = ("plain", "plain paused", "reentrant", "reentrant paused")
    for name in names:
        at = old_job(db, name, allow_stale_reentry=name.startswith("reentrant"))
        execution(db, "RUNNING", name, plan_time=at, stale_after=now(db) - 2 * MINUTE)
    assert violations(db) == []
    db.execute("UPDATE cronledger.executions SET stale_after = stale_after - interval '2 min'")
    for name in ("plain paused", "reentrant paused"):
        db.execute("SELECT cronledger.pause(%s)", [name])
    found = db.execute("SELECT kind, job_name FROM cronledger.violations ORDER BY 2").fetchall()
    # An attempt that may be stolen waits for the end of the pause; a sweep does not wait.
    assert [(row["kind"], row["job_name"]) for row in found] == [
        ("stale", name) for name in ("plain", "plain paused", "reentrant")
    ]


def test_parked_for_a_reason_that_is_not_true(db: Db) -> None:
    truths = {
        "paused": "paused_at = cronledger.db_now()",
        "retired": "retired_at = cronledger.db_now()",
        "unscheduled": "schedule = NULL",
        "spec_error": "spec_error = 'bad'",
    }
    for why in truths:
        old_job(db, why)
        schedule(db, why, parked=why, next_due_at=None)
    found = db.execute("SELECT kind, job_name FROM cronledger.violations").fetchall()
    assert {(row["kind"], row["job_name"]) for row in found} == {("parked", why) for why in truths}
    for why, truth in truths.items():
        db.execute(f"UPDATE cronledger.jobs SET {truth} WHERE name = %s".encode(), [why])
        schedule(db, why, parked=why, next_due_at=None)
    assert violations(db) == []


@pytest.mark.parametrize("why", ["waiting", "limit", "no_runner"])
def test_parked_with_nothing_in_the_way(db: Db, why: str) -> None:
    at = old_job(db, max_running=1)
    execution(db, plan_time=at, updated_at=at)
    schedule(db, parked=why, next_due_at=None)
    assert violations(db) == []  # nobody sweeps
    runner(db)
    assert violations(db) == []  # nobody has swept for long
    db.execute("UPDATE cronledger.runners SET started_at = started_at - interval '1 h'")
    assert violations(db) == [("parked", None)]
    if why == "no_runner":
        db.execute("UPDATE cronledger.runners SET queues = '{other}'")
    else:
        db.execute("UPDATE cronledger.executions SET updated_at = cronledger.db_now()")
    assert violations(db) == []


def test_parked_behind_a_running_execution(db: Db) -> None:
    old_job(db, max_running=1)
    runner(db, started_at=now(db) - HOUR)
    execution(db, "RUNNING", updated_at=now(db) - HOUR)
    for why in ("waiting", "limit"):
        schedule(db, parked=why, next_due_at=None)
        assert violations(db) == []


def test_a_start_is_written_after_the_end_that_it_waited_for(db: Db, other: Db) -> None:
    """A claim whose statement began before another attempt ended, and that saw it ended."""
    job(db, schedule=None, handler="external")
    claim = "SELECT answer FROM cronledger.claim('job', 'w2')"
    with db.transaction():
        db.execute("SELECT FROM cronledger.schedules FOR NO KEY UPDATE")
        claimed = start_blocked(db, other, lambda: other.execute(claim))
        at = now(db)
        execution(db, plan_time=at, started_at=at, finished_at=now(db), trigger="enqueue")
    assert claimed.result(90).fetchone() == {"answer": "won"}
    assert violations(db) == []


def accept(db: Db, kind: str, at: datetime, reason: str = "incident", **more: object) -> int:
    given = {"kind": kind, "job": "job", "plan_time": at, "reason": reason} | more
    names = sql.SQL(", ").join(
        sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in given
    )
    statement = sql.SQL("SELECT cronledger.accept_violation({}) AS id").format(names)
    ident: int = one(db.execute(statement, given))["id"]
    return ident


def test_an_accepted_violation_is_not_in_the_view(db: Db) -> None:
    at = old_job(db)
    early = execution(db, plan_time=at, started_at=at - SECOND)
    execution(db, plan_time=at + HOUR, started_at=at + HOUR - SECOND)
    ident = accept(db, "early", at, "a bad clock", execution_id=early["id"])
    assert violations(db) == [("early", at + HOUR)]
    assert accept(db, "early", at, "another", execution_id=early["id"]) == ident
    (row,) = db.execute("SELECT * FROM cronledger.accepted_violations").fetchall()
    assert (row["reason"], row["withdrawn_at"]) == ("a bad clock", None)
    assert row["accepted_by"] == db.info.user
    db.execute("SELECT cronledger.withdraw_acceptance(%s)", [ident])
    assert violations(db) == [("early", at), ("early", at + HOUR)]
    assert accept(db, "early", at, "again", execution_id=early["id"]) > ident
    assert violations(db) == [("early", at + HOUR)]


def test_only_the_violation_that_was_meant_is_accepted(db: Db) -> None:
    old_job(db)
    at = old_job(db, "other")
    early = execution(db, plan_time=at, started_at=at - SECOND)
    accept(db, "overlapping", at, "of another kind", execution_id=early["id"])
    accept(db, "early", at, "of another job", job="other", execution_id=early["id"])
    accept(db, "early", at, "of another scope", scope_id="x", execution_id=early["id"])
    accept(db, "early", at, "of no execution")
    accept(db, "early", at - HOUR, "of another time", execution_id=early["id"],
           through_plan_time=at - SECOND)  # fmt: skip
    assert violations(db) == [("early", at)]


def test_operators_accept_each_acceptable_kind(db: Db) -> None:
    at = old_job(db)
    db.execute("SET ROLE cronledger_operator")
    for kind in ACCEPTABLE:
        assert accept(db, kind, at) > 0


BAD_ACCEPTANCES: list[tuple[dict[str, Any], str]] = [
    ({"kind": "parked"}, "violations of kind parked cannot be accepted"),
    ({"reason": " "}, "no reason is given"),
    ({"job": "nope"}, "does not exist"),
    ({"scope_id": None}, "scope global/"),
    ({"at": None}, "plan_times"),
    ({"through_plan_time": "infinity"}, "to infinity"),
    ({"through_plan_time": "2001-01-01"}, "to 2001-01-01"),
]


def test_an_acceptance_of_no_possible_violation_is_refused(db: Db) -> None:
    at = old_job(db)
    for values, message in BAD_ACCEPTANCES:
        given: dict[str, Any] = {"kind": "early", "at": at} | values
        with pytest.raises(psycopg.DatabaseError, match=message) as caught:
            accept(db, **given)
        assert caught.value.sqlstate in ("22023", "P0002")
        assert caught.value.diag.message_hint
    with pytest.raises(errors.NoDataFound, match="does not exist") as refused:
        db.execute("SELECT cronledger.withdraw_acceptance(4711)")
    assert refused.value.diag.message_hint

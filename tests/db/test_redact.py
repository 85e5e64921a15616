"""Redaction: the data of an execution is gone everywhere, and the ledger still accounts for it."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.db.support.commands import command
from tests.db.support.rows import Db, execution, insert, job, now, one, start_blocked, value

SECRET = "ann@example.com"
KEPT = ("id", "plan_time", "status", "error_code", "started_at", "finished_at", "attempt")


@pytest.fixture
def filled(db: Db) -> Db:
    job(db, max_attempts=3)
    return db


def failed(db: Db, **columns: Any) -> dict[str, Any]:
    """A failed execution with personal data wherever an execution can have some."""
    ended = now(db).isoformat()
    before = {
        "attempt": 1, "runner_id": "r0", "lease_token": str(uuid4()), "error_code": "boom",
        "error_msg": SECRET, "started_at": ended,
        "last_seen": ended, "ended_at": ended,
    }  # fmt: skip
    return execution(
        db, "FAILED", payload=Jsonb({"mail": SECRET}), result=Jsonb(SECRET), output=SECRET,
        error_msg=SECRET, enqueue_key=SECRET, attempt=2, attempts=Jsonb([before]), **columns,
    )  # fmt: skip


def holders(db: Db) -> list[str]:
    """The tables in which the secret is."""
    tables = db.execute(
        "SELECT c.relname AS name FROM pg_class c WHERE c.relkind IN ('r', 'p')"
        " AND c.relnamespace = 'cronledger'::regnamespace AND NOT c.relispartition"
    ).fetchall()
    return [
        table["name"]
        for table in tables
        if value(
            db,
            f"SELECT EXISTS (SELECT FROM cronledger.{table['name']} t"
            f" WHERE strpos(t::text, '{SECRET}') > 0)",
        )
    ]


def redact(db: Db, execution_id: int) -> bool:
    done: bool = value(
        db, "SELECT cronledger.redact(%s, 'a request', requested_by => 'bob')", execution_id
    )
    return done


def test_the_data_is_gone_from_every_table_and_the_account_stays(filled: Db) -> None:
    at = now(filled)
    row = failed(filled)
    waiting = insert(filled, "deliveries", channel="ops")["id"]
    details = Jsonb({"error_msg": SECRET, "output": SECRET, "error_code": "boom"})
    alert = {
        "event": "failed", "channel": "ops", "since": at, "count": 1, "job_name": "job",
        "scope_kind": "global", "scope_id": "global", "execution_id": row["id"],
        "summary": f"job failed: {SECRET}", "details": details,
    }  # fmt: skip
    insert(filled, "raised_alerts", at=at, kind="opened", delivery_id=waiting, **alert)
    kept = {"execution_id": row["id"] + 1, "details": Jsonb({"error_msg": "kept"}), "summary": ""}
    insert(filled, "raised_alerts", at=at, kind="opened", delivery_id=waiting, **alert | kept)
    insert(filled, "tracked_states", last_alert_at=at, **alert)
    assert set(holders(filled)) == {"executions", "raised_alerts", "tracked_states"}

    assert redact(filled, row["id"])
    assert not redact(filled, row["id"])
    assert holders(filled) == []
    after = one(filled.execute("SELECT * FROM cronledger.executions WHERE id = %s", [row["id"]]))
    assert [after[name] for name in KEPT] == [row[name] for name in KEPT]
    assert after["redacted_at"] is not None
    assert [entry["error_code"] for entry in after["attempts"]] == ["boom"]
    sent = value(
        filled, "SELECT cronledger_internal.delivery_message(d) FROM cronledger.deliveries d"
    )
    first, second = sent["alerts"]
    assert first["summary"] == f"The data of execution {row['id']} was redacted."
    assert second["details"] == {"error_msg": "kept"}
    outcomes = filled.execute(
        "SELECT requested_by, outcome, reason FROM cronledger.audit WHERE verb = 'redact'"
        " ORDER BY id"
    ).fetchall()
    assert [tuple(found.values()) for found in outcomes] == [
        ("bob", "done", "a request"), ("bob", "unchanged", "a request"),
    ]  # fmt: skip
    assert filled.execute("SELECT * FROM cronledger.violations").fetchall() == []


def test_the_alert_of_a_step_that_has_not_ended_is_redacted_too(filled: Db, other: Db) -> None:
    insert(filled, "channels", name="ops", settings=Jsonb({"kind": "command", "command": "a"}))
    job(filled, "notified", notify=Jsonb([{"channel": "ops", "on": ["failed"]}]))
    row = failed(filled, job="notified", plan_time=now(filled))
    filled.execute("UPDATE cronledger.executions SET changed_xact = pg_current_xact_id()")
    with filled.transaction():
        filled.execute("SELECT cronledger_internal.raise_alerts(10)")
        redaction = start_blocked(filled, other, lambda: redact(other, row["id"]))
    assert redaction.result()
    assert value(filled, "SELECT count(*) FROM cronledger.raised_alerts") == 1
    assert holders(filled) == []


def test_alerts_about_other_executions_are_not_read(filled: Db) -> None:
    row, at = failed(filled), now(filled)
    for number in range(30):
        insert(
            filled, "raised_alerts", at=at, event="failed", kind="opened", channel="ops", since=at,
            count=1, job_name="job", execution_id=row["id"] + number, summary="", details="{}",
        )  # fmt: skip
    read = (
        "SELECT pg_stat_get_xact_tuples_returned(c.oid) FROM pg_class c"
        " WHERE c.oid = 'cronledger.raised_alerts'::regclass"
    )
    with filled.transaction():
        before = value(filled, read)
        assert redact(filled, row["id"])
        assert value(filled, read) - before <= 1


def test_an_execution_that_has_not_ended_is_refused(filled: Db) -> None:
    pending: list[tuple[str, dict[str, Any]]] = [
        ("RUNNING", {}), ("PENDING", {}), ("FAILED", {"next_attempt_at": "2099-01-01Z"}),
    ]  # fmt: skip
    for n, (status, columns) in enumerate(pending):
        at = now(filled) - n * timedelta(minutes=1)
        row = execution(filled, status, payload=Jsonb(SECRET), plan_time=at, **columns)
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="has not ended"):
            redact(filled, row["id"])
    kept = value(filled, "SELECT count(*) FROM cronledger.executions WHERE payload = %s",
                 Jsonb(SECRET))  # fmt: skip
    assert kept == len(pending)


def test_a_redacted_execution_does_not_run_again(filled: Db) -> None:
    row = failed(filled, plan_time=now(filled).replace(microsecond=0) - timedelta(minutes=2))
    redact(filled, row["id"])
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="was redacted at"):
        filled.execute("SELECT cronledger.retry(%s)", [row["id"]])
    with pytest.raises(errors.NoDataFound, match="execution 99 does not exist"):
        redact(filled, 99)
    action = value(
        filled,
        "SELECT action FROM cronledger.preview_backfill('job', ARRAY[%s::timestamptz],"
        " reprocess => 'failed')",
        row["plan_time"],
    )
    assert action is None


def test_the_command_redacts_and_why_says_so(filled: Db, database_url: str) -> None:
    row = failed(filled)

    def cronledger(*arguments: str) -> str:
        return command(database_url, *arguments).output

    number = str(row["id"])
    assert cronledger("executions", "redact", number) == f"{number}: redacted\n"
    assert cronledger("executions", "redact", number) == f"{number}: was redacted before\n"
    assert "Its data was redacted at" in cronledger("why", number)
    for shows in (("show", number), ("show", number, "--json"), ("output", number)):
        assert SECRET not in cronledger("executions", *shows)

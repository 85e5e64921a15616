"""Redaction: the data of an execution is gone everywhere, and the ledger still accounts for it.

`redact_revisions`: a value disappears from the earlier revisions of a job.
"""

import json
from datetime import timedelta
from typing import Any, LiteralString
from uuid import uuid4

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from cronledger.engine.claiming.revisions import parse_job
from cronledger.rules.model import Job
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


# -- earlier revisions -----------------------------------------------------------------------------

PASSWORD = "hunter2"
URL = f"https://u:{PASSWORD}@example.org/hook/{PASSWORD}"


def edit(db: Db, name: str, handler: str, target: dict[str, Any], payload: Any = None) -> None:
    db.execute(
        "INSERT INTO cronledger.jobs (name, handler, target, payload) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (name) DO UPDATE SET target = excluded.target, payload = excluded.payload",
        [name, handler, Jsonb(target), Jsonb(payload)],
    )


def redact_revisions(db: Db, name: str, *path: str) -> int:
    number: int = value(
        db, "SELECT cronledger.redact_revisions(%s, %s, 'leaked', 'ann')", name, list(path)
    )
    return number


def definitions(db: Db, name: str) -> list[dict[str, Any]]:
    text: LiteralString = (
        "SELECT definition FROM cronledger.job_revisions WHERE job_name = %s ORDER BY revision"
    )
    return [row["definition"] for row in db.execute(text, [name]).fetchall()]


def test_a_variable_is_removed_from_every_earlier_revision_and_the_audit_trail_shows_it(
    db: Db,
) -> None:
    edit(db, "j", "command", {"command": ["a"], "env": {"P": PASSWORD, "Q": "q"}})
    edit(db, "j", "command", {"command": ["b"], "env": {"P": PASSWORD}})
    assert redact_revisions(db, "j", "target", "env", "P") == 0, "the present value stays"
    edit(db, "j", "command", {"command": ["b"], "env": {"P": {"env": "NAME"}}})
    edit(db, "j", "command", {"command": ["c"], "env": {"P": {"env": "OTHER"}}})
    assert redact_revisions(db, "j", "target", "env", "P") == 2
    assert [found["target"].get("env") for found in definitions(db, "j")] == [
        {"P": "***", "Q": "q"}, {"P": "***"}, {"P": {"env": "NAME"}}, {"P": {"env": "OTHER"}},
    ]  # fmt: skip
    assert redact_revisions(db, "j", "target", "env", "P") == 0
    row = one(db.execute(
        "SELECT * FROM cronledger.audit WHERE verb = 'redact_revisions' AND outcome = 'done'"
    ))  # fmt: skip
    assert (row["object"], row["requested_by"], row["reason"]) == ("j", "ann", "leaked")
    assert row["arguments"] == {"path": ["target", "env", "P"], "revisions": 2}


PLACES: list[tuple[str, dict[str, Any], Any, list[str], Any]] = [
    ("http", {"url": URL}, None, ["target", "url"], "https://example.org/***"),
    ("http", {"url": "http://h", "headers": {"A": PASSWORD}}, None, ["target", "headers", "A"],
     "***"),
    ("http", {"url": "http://h", "body": {"k": [PASSWORD, 7]}}, None, ["target", "body"],
     {"k": ["***", "***"]}),
    ("command", {"command": ["a", PASSWORD]}, None, ["target", "command"], ["***", "***"]),
    ("command", {"command": f"a {URL}"}, None, ["target", "command"], "***"),
    ("sql", {"sql": f"SELECT '{PASSWORD}'"}, None, ["target", "sql"], "***"),
    ("command", {"command": "a"}, {"pin": 1234, "no": None}, ["payload"],
     {"pin": "***", "no": None}),
]  # fmt: skip


def test_a_redacted_revision_can_still_be_planned(db: Db) -> None:
    for n, (handler, target, payload, path, left) in enumerate(PLACES):
        name = f"j{n}"
        edit(db, name, handler, target, payload)
        db.execute("DELETE FROM cronledger.jobs")  # its history remains
        assert redact_revisions(db, name, *path) == 2
        for definition in definitions(db, name):
            assert PASSWORD not in json.dumps(definition)
            found = definition
            for key in path:
                found = found[key]
            assert found == left
            row = {**definition, **periods(db, definition)}
            parse_job({**dict.fromkeys(Job.model_fields), **row})


def periods(db: Db, definition: dict[str, Any]) -> dict[str, Any]:
    """The row of the definition, whose durations are no text."""
    row = one(db.execute(
        "SELECT (jsonb_populate_record(NULL::cronledger.jobs, %s)).*", [Jsonb(definition)]
    ))  # fmt: skip
    return {name: value for name, value in row.items() if name not in ("target", "payload")}


def test_other_fields_and_unknown_jobs_are_refused(db: Db) -> None:
    edit(db, "j", "command", {"command": "a"})
    paths: list[list[str] | None] = [
        [], ["target"], ["target", "env"], ["target", "python"], ["schedule"],
        ["target", "env", "A", "env"], None,
    ]  # fmt: skip
    for path in paths:
        with pytest.raises(errors.InvalidParameterValue, match=r"job j: path .* redacted"):
            db.execute("SELECT cronledger.redact_revisions('j', %s)", [path])
    with pytest.raises(errors.NoDataFound, match="job nope does not exist"):
        redact_revisions(db, "nope", "payload")

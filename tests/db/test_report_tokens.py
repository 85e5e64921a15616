"""F119: tokens with which programs report runs: what is stored, and what becomes of a report."""

from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.db.support.engine import Ledger, runners
from tests.db.support.rows import Db, connected, job, now, one, travel, value

HASH = sha256(b"secret").hexdigest()


@pytest.fixture(autouse=True)
def seen(db: Db) -> None:
    """An observed job."""
    job(db, "seen", handler="observed", target="{}")


def create(db: Db, token_hash: str | None = HASH, of_job: str = "seen", **given: Any) -> int:
    names = "".join(f", {name} => %s" for name in given)
    statement = f"SELECT cronledger.create_report_token(%s, %s{names})"
    made: int = one(db.execute(statement.encode(), [token_hash, of_job, *given.values()]))[
        "create_report_token"
    ]
    return made


def report(db: Db, has_ended: bool = True, token_hash: str = HASH, **given: Any) -> dict[str, Any]:
    names = "".join(f", {name} => %s" for name in given)
    statement = f"SELECT * FROM cronledger.report_by_token(%s, %s{names})"
    return one(db.execute(statement.encode(), [token_hash, has_ended, *given.values()]))


def reports(db: Db) -> list[dict[str, Any]]:
    return db.execute("SELECT * FROM cronledger.reports ORDER BY id").fetchall()


def test_a_report_has_the_job_the_scope_and_the_host_of_its_token(db: Db) -> None:
    job(db, "scoped", handler="observed", target="{}", scope_kind="tenant", scopes=["a", "b"])
    create(db, of_job="scoped", scope_kind="tenant", scope_id="b", host="web1")
    before = now(db)
    assert report(db, exit_status=3, output="no space")["outcome"] == "accepted"
    (row,) = reports(db)
    assert (row["job_name"], row["scope_kind"], row["scope_id"]) == ("scoped", "tenant", "b")
    assert (row["host"], row["source"], row["exit_status"]) == ("web1", "http", 3)
    assert before < row["started_at"] == row["ended_at"] < now(db)


def test_an_end_without_a_run_key_ends_the_newest_run(db: Db) -> None:
    create(db)
    report(db, has_ended=False)
    report(db, has_ended=True, error="the run was reported as failed")
    (row,) = reports(db)
    assert row["error"] == "the run was reported as failed"
    report(db, has_ended=True)
    assert len(reports(db)) == 2


async def test_a_report_becomes_an_execution_with_its_output(ledger: Ledger, db: Db) -> None:
    create(db)
    report(db, exit_status=0, output="postgresql://me:hunter2@db/x done")
    async with runners(ledger.url, {}) as (replica,):
        assert await replica.settle() == []
    row = one(db.execute("SELECT * FROM cronledger.executions WHERE job_name = 'seen'"))
    assert (row["status"], row["runner_id"]) == ("SUCCESS", "observed")
    assert "done" in row["output"] and "hunter2" not in row["output"]


def test_unknown_and_revoked_tokens_report_nothing(db: Db) -> None:
    made = create(db)
    assert report(db, token_hash="0" * 64)["outcome"] == "unknown"
    assert value(db, "SELECT cronledger.revoke_report_token(%s, 'ann')", made) is True
    assert value(db, "SELECT cronledger.revoke_report_token(%s, 'bob')", made) is False
    with pytest.raises(errors.NoDataFound, match="report token 4711 does not exist"):
        db.execute("SELECT cronledger.revoke_report_token(4711)")
    assert report(db)["outcome"] == "unknown"
    assert reports(db) == []
    row = one(db.execute("SELECT * FROM cronledger.report_token_status"))
    assert (row["revoked_by"], row["last_used_at"]) == ("ann", None)


def test_a_deleted_job_has_no_tokens_and_no_reports(db: Db) -> None:
    create(db)
    job(db, "other", handler="observed", target="{}")
    create(db, "0" * 64, of_job="other")
    db.execute("DELETE FROM cronledger.jobs WHERE name = 'seen'")
    absent = "job 'seen' does not exist"
    with pytest.raises(errors.NoDataFound, match=absent):
        create(db, "1" * 64)
    with pytest.raises(errors.NoDataFound, match=absent):
        db.execute("SELECT cronledger.observe_start('seen')")
    job(db, "seen", handler="observed", target="{}")
    assert report(db)["outcome"] == "unknown"
    assert value(db, "SELECT cronledger.report_token_job(%s)", HASH) is None
    assert value(db, "SELECT cronledger.report_token_job(%s)", "0" * 64) == "other"
    assert report(db, token_hash="0" * 64)["outcome"] == "accepted"


def test_a_token_is_not_created_beside_the_deletion_of_its_job(db: Db, other: Db) -> None:
    with other.transaction():
        create(other)
        db.execute("SET lock_timeout = '20ms'")
        with pytest.raises(errors.LockNotAvailable) as waited:
            db.execute("DELETE FROM cronledger.jobs")
        # It waits at its first step. Later steps have already revoked the tokens that they saw.
        assert 'in relation "jobs"' in (waited.value.diag.context or "")
    db.execute("DELETE FROM cronledger.jobs")
    assert report(db)["outcome"] == "unknown"


def test_a_token_has_300_reports_within_a_minute(db: Db) -> None:
    create(db)
    db.execute(
        "UPDATE cronledger.report_tokens"
        " SET minute_count = 299, minute_from = cronledger.db_clock()"
    )
    assert report(db)["outcome"] == "accepted"
    limited = report(db)
    assert limited["outcome"] == "limited" and 1 <= limited["retry_after"] <= 60
    assert len(reports(db)) == 1
    travel(db, timedelta(minutes=1, seconds=1))
    assert report(db)["outcome"] == "accepted"


def test_a_refused_report_has_a_reason_and_counts(db: Db) -> None:
    create(db)
    db.execute("DELETE FROM cronledger.schedules")
    refused = report(db)
    assert refused["outcome"] == "refused"
    assert refused["problem"] == "job 'seen' has no scope global/global"
    assert refused["remedy"].startswith("To list its scopes, run SELECT")
    count = "SELECT minute_count FROM cronledger.report_tokens"
    assert value(db, count) == 1


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"of_job": "absent"}, errors.NoDataFound, "job 'absent' does not exist"),
        ({"of_job": "run"}, errors.ObjectNotInPrerequisiteState, "only an observed job"),
        ({"scope_id": "x"}, errors.NoDataFound, "has no scope global/x"),
        ({"token_hash": "secret"}, errors.InvalidParameterValue, "is not a SHA-256"),
        ({"token_hash": None}, errors.InvalidParameterValue, "is not a SHA-256"),
        ({"host": "h" * 201}, errors.InvalidParameterValue, "1 to 200 characters"),
    ],
)
def test_a_token_needs_an_observed_job_and_a_hash(
    db: Db, given: dict[str, Any], error: type[psycopg.Error], message: str
) -> None:
    job(db, "run")
    with pytest.raises(error, match=message):
        create(db, **given)


def test_a_token_belongs_to_one_job(db: Db) -> None:
    create(db)
    job(db, "other", handler="observed", target="{}")
    with pytest.raises(errors.InvalidParameterValue, match="this token exists already"):
        create(db, of_job="other")


def test_no_view_and_no_row_of_the_audit_trail_has_the_hash(db: Db) -> None:
    made = create(db)
    db.execute(
        "SELECT cronledger.record_refusal('create_report_token',"
        " jsonb_build_object('job', 'seen', 'token_hash', %s::text), 'refused')", [HASH],
    )  # fmt: skip
    audit = db.execute("SELECT * FROM cronledger.audit WHERE verb = 'create_report_token'")
    done, refused = sorted(audit.fetchall(), key=lambda row: row["id"])
    assert done["arguments"] == {"token_id": made, "scope_kind": "global", "scope_id": "global"}
    assert (done["job_name"], refused["object"], refused["outcome"]) == ("seen", "seen", "refused")
    status = db.execute("SELECT * FROM cronledger.report_token_status").fetchall()
    assert HASH not in str((done, refused, status))


def test_reports_of_a_clock_that_went_back_are_counted_anew(db: Db, database_url: str) -> None:
    create(db)
    travel(db, timedelta(hours=1))
    assert report(db)["outcome"] == "accepted"
    travel(db, timedelta(hours=-1))
    with connected(database_url) as other:
        assert report(other)["outcome"] == "accepted"
    used: datetime = value(db, "SELECT last_used_at FROM cronledger.report_tokens")
    assert used > now(db)
    assert value(db, "SELECT minute_count FROM cronledger.report_tokens") == 1

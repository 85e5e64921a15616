"""`verify` as a person calls it: what it prints, and its exit code."""

from datetime import timedelta
from importlib import metadata
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cronledger.audit import verify as verifying
from cronledger.audit.recording import Recording
from cronledger.ledger.audits import Audits
from tests.cli.conftest import Ask, Cli
from tests.cli.support.clocks import set_ten_past
from tests.cli.support.results import done, read, refused
from tests.db.support.rows import Db


@pytest.fixture
def spoiled(cli: Cli, ask: Ask, db: Db) -> Cli:
    """Two jobs that were made an hour and a half ago; the cursor of `a` went on without a row."""
    set_ten_past(db)
    ask(
        "INSERT INTO cronledger.jobs (name, schedule, handler)"
        " VALUES ('a', '0 * * * *', 'external'), ('b', '0 * * * *', 'external')"
    )
    for table, column in (("schedules", "created_at"), ("job_revisions", "effective_from")):
        ask(
            f"UPDATE cronledger.{table} SET {column} = date_trunc('hour', {column})"
            " - interval '90 min'"
        )
    ask(
        "UPDATE cronledger.schedules SET planned_through ="
        " CASE job_name WHEN 'a' THEN cronledger.db_now() ELSE created_at END"
    )
    return cli


def test_a_clean_ledger(cli: Cli) -> None:
    said = cli("verify")
    assert (said.exit_code, said.stdout) == (0, "")
    assert "no violations" in said.stderr
    found = read(cli, "verify")
    assert (found["violations"], found["totals"]["kinds"]) == ([], {})


def test_violations_are_listed_and_the_exit_code_is_1(spoiled: Cli) -> None:
    said = spoiled("verify")
    refused(said, "1 violation; 2 schedules", code=1)
    header, row = said.stdout.splitlines()
    assert header.startswith("VIOLATION ")
    assert row.split()[:3] == ["missing", "a", "global"]
    found = read(spoiled, "verify", code=1)
    (violation,) = found["violations"]
    assert violation.pop("detail").startswith("no execution and no skip accounts for")
    assert all(violation.pop(name).endswith(":00:00Z") for name in ("plan_time", "through"))
    assert violation == {
        "kind": "missing", "job_name": "a", "scope_kind": "global", "scope_id": "global",
        "execution_id": None, "count": 2, "accepted": None,
    }  # fmt: skip
    assert found["totals"]["kinds"] == {"missing": 1}
    assert found["totals"]["schedules"] == 2


@pytest.mark.long
def test_the_range_is_reported(spoiled: Cli) -> None:
    said = spoiled("verify", "a")
    checked, tail = said.stderr.splitlines()[-1].split(" up to ")
    assert checked.startswith("plan_times after 20")
    assert tail.endswith("Z were checked")
    assert spoiled("verify", "--to", "3h").exit_code == 0
    said = done(spoiled, "verify", "--from", "0s")
    assert said.stderr.splitlines()[-1].startswith("no plan_times were checked")
    # A job that nobody plans does not pass.
    said = spoiled("verify", "b")
    refused(said, "planning is behind on 1 schedules", code=1)
    assert "no plan_time was checked, although some are due" in said.stdout


def test_a_violation_of_the_present_cannot_be_accepted(cli: Cli, ask: Ask) -> None:
    ask("INSERT INTO cronledger.jobs (name, schedule, handler) VALUES ('a', '@daily', 'external')")
    ask("DELETE FROM cronledger.schedules")
    ask("INSERT INTO cronledger.jobs (name, handler) VALUES ('b', 'external')")
    said = cli("verify", "--accept", "never mind")
    assert said.exit_code == 1
    assert "schedules has no row" in said.stdout
    assert ask("SELECT count(*) FROM cronledger.acceptances") == [(0,)]


def test_bad_arguments_and_an_older_schema_are_refused(cli: Cli, ask: Ask) -> None:
    for *arguments, said in (
        ("nope", "does not exist"),
        ("--from", "soon", "neither a time"),
        ("--from", "1h", "--to", "2h", "is before --from"),
        ("--kind", "missing", "--kind needs --accept"),
        ("--accept", " ", "needs a reason"),
        ("--accept", "x", "--kind", "parked", "cannot be accepted"),
    ):
        refused(cli("verify", *arguments), said)
    ask("DROP FUNCTION cronledger_internal.present_violations CASCADE")
    assert cli("verify").exit_code == 4


# The record of runs


def runs(db: Db) -> list[dict[str, Any]]:
    return db.execute("SELECT * FROM cronledger.verifications ORDER BY id").fetchall()


@pytest.mark.long
def test_each_run_is_recorded_with_its_range_and_counts(spoiled: Cli, db: Db) -> None:
    assert spoiled("verify").exit_code == 1
    assert spoiled("verify", "a", "--from", "1d", "--to", "0s", "--json").exit_code == 1
    assert spoiled("verify", "a", "--accept", "INC-7").exit_code == 0
    every, one, accepted = runs(db)
    assert (every["job_name"], every["from_plan_time"], every["to_plan_time"]) == (None,) * 3
    assert (every["outcome"], every["error"], every["schedules"]) == ("finished", None, 2)
    # Planning of `b` is behind, which is reported only if nothing else could be checked.
    assert (every["violations"], every["kinds"], every["behind"]) == (1, {"missing": 1}, 1)
    assert every["started_at"] <= every["finished_at"]
    assert every["checked_after"] < every["checked_through"]
    assert "@" in every["requested_by"]
    assert every["version"] == metadata.version("cronledger")
    assert (one["job_name"], one["plan_times"]) == ("a", 2)
    assert one["to_plan_time"] - one["from_plan_time"] == timedelta(days=1)
    assert (accepted["violations"], accepted["accepted"], accepted["kinds"]) == (0, 1, {})


def test_a_run_that_fails_is_recorded_as_interrupted_with_what_it_found(
    spoiled: Cli, db: Db, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Audits, "blockers", interrupt)
    monkeypatch.setattr(verifying, "_BLOCKERS", 0)  # ask for them after each schedule
    ask(
        "INSERT INTO cronledger.skips (job_name, scope_kind, scope_id, from_plan_time,"
        " through_plan_time, count, reason, revision, blocked_by)"
        " SELECT 'a', 'global', 'global', at, at, 1, 'overlap', 1, 1"
        " FROM date_trunc('hour', cronledger.db_now()) at"
    )
    said = spoiled("verify", "--json")
    assert said.exit_code == 1
    (run,) = runs(db)
    assert (run["outcome"], run["error"]) == ("interrupted", "KeyboardInterrupt")
    assert (run["schedules"], run["violations"]) == (1, 1)
    assert run["finished_at"] is not None


def test_a_killed_run_stays_unfinished(cli: Cli, db: Db, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as c:
        Recording.begin(c, "cronledger", job=None, from_=None, to=None, requested_by="me")
    (run,) = runs(db)
    assert (run["outcome"], run["finished_at"], run["violations"]) == ("unfinished", None, None)
    assert cli("verify").exit_code == 0
    assert [run["outcome"] for run in runs(db)] == ["unfinished", "finished"]


def test_a_read_only_database_is_verified_without_a_record(
    cli: Cli, db: Db, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make_conninfo(database_url, options="-cdefault_transaction_read_only=on")
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", url)
    said = done(cli, "verify")
    assert said.stderr.count("this run is not recorded, because the database is read-only") == 1
    assert runs(db) == []


def test_the_newest_runs_are_kept_of_all_jobs_and_of_one(cli: Cli, db: Db, ask: Ask) -> None:
    assert cli("verify").exit_code == 0
    ask(
        "SELECT cronledger_internal.begin_verification('a', NULL, NULL, '1', n::text)"
        " FROM generate_series(1, 1005) n"
    )
    every, *others = runs(db)
    assert (every["job_name"], every["outcome"]) == (None, "finished")
    assert [run["requested_by"] for run in others] == [str(n) for n in range(6, 1006)]

"""F105: `import pg_cron --history` reports each run that pg_cron has recorded once."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg.conninfo import make_conninfo

from cronledger.cli import main
from tests.cli.support.results import refused
from tests.db.support.engine import HOUR, Ledger, Runner
from tests.db.test_import_pg_cron import STARTS, needs_pg_cron, pg_cron
from tests.waiting import until

Call = Callable[..., Result]
WRAPPED = "DO 'BEGIN PERFORM cronledger.observe_start(''tidy''); END'"
TABLES = """
CREATE SCHEMA cron;
CREATE TABLE cron.job (jobid bigint, command text);
CREATE TABLE cron.job_run_details (jobid bigint, runid bigint PRIMARY KEY, command text DEFAULT '',
    status text, return_message text, start_time timestamptz, end_time timestamptz);
INSERT INTO cron.job VALUES (7, '');
"""
REPORTS = """
SELECT substr(s.run_key, 9)::int, s.started_at, s.ended_at, r.error, r.output
FROM report_status s JOIN reports r ON r.id = s.id WHERE s.source = 'pg_cron' ORDER BY 1"""


@pytest.fixture
def call(ledger: Ledger) -> Call:
    """Call the command line on the ledger."""

    def run(*arguments: str) -> Result:
        environment = {"CRONLEDGER_DATABASE_URL": ledger.url}
        return CliRunner(env=environment).invoke(main, arguments, catch_exceptions=False)

    return run


@pytest.fixture
def tables(ledger: Ledger) -> Ledger:
    """A ledger whose database has the tables of pg_cron, and an observed job of the jobid 7."""
    ledger.values(TABLES)
    ledger.values("UPDATE time_travel SET ahead = '0'")  # the clock of the tables
    ledger.job("tidy", handler="observed", labels={"pg_cron": "7"}, source="main")
    return ledger


def ran(ledger: Ledger, *rows: Sequence[object], jobid: int = 7, command: str = "") -> None:
    """Write runs as pg_cron does: runid, status, message, start and end."""
    for runid, *rest in rows:
        ledger.values("DELETE FROM cron.job_run_details WHERE runid = %s", runid)
        ledger.values(
            "INSERT INTO cron.job_run_details VALUES (%s, %s, %s, %s, %s, %s, %s)",
            jobid, runid, command, *rest,
        )  # fmt: skip


def read(call: Call, url: str, *more: str) -> int:
    """Read the history, and return the number of new reports."""
    ended = call("import", "pg_cron", "--history", "--from", url, *more)
    assert ended.exit_code == 0, ended.output
    return int(ended.stdout.rpartition(" ")[2])


def test_each_run_is_reported_once_with_its_times_F105(tables: Ledger, call: Call) -> None:
    now = tables.now()
    began, ended = now - 3 * HOUR, now - HOUR
    ran(
        tables, (1, "starting", None, None, None), (2, "running", None, began, None),
        (3, "succeeded", "1 row", now - 2 * HOUR, ended),
        (4, "failed", "ERROR:  no", ended, now), (5, "failed", "server restarted", now, None),
        (6, "succeeded", "", now - 170 * HOUR, now), (8, "failed", None, None, None),
    )  # fmt: skip
    ran(tables, (7, "succeeded", "", now, now), command=WRAPPED)
    ran(tables, (9, "succeeded", "", now, now), jobid=8)
    assert read(call, tables.url) == 4
    *exact, restarted = tables.values(REPORTS)
    assert exact == [
        (2, began, None, None, None), (3, now - 2 * HOUR, ended, None, "1 row"),
        (4, ended, now, "ERROR:  no", None),
    ]  # fmt: skip
    assert (restarted[0], restarted[3]) == (5, "server restarted")
    assert restarted[2] >= now, "pg_cron does not record this end"
    assert read(call, tables.url) == 0
    ran(tables, (1, "running", None, now, None), (2, "succeeded", "2 rows", began, now))
    assert read(call, tables.url) == 2
    assert tables.values(REPORTS)[:2] == [
        (1, now, None, None, None), (2, began, now, None, "2 rows")
    ]  # fmt: skip
    assert read(call, tables.url) == 0


async def test_a_run_of_the_history_becomes_the_execution_of_its_plan_time_F105(
    tables: Ledger, call: Call, one: Runner
) -> None:
    at: datetime = tables.one("SELECT date_trunc('day', db_now()) + interval '40 h'")
    tables.stop_clock(at - HOUR)  # the clock of the other server is behind
    tables.edit("tidy", schedule="@hourly", grace="10 min")
    assert await one.settle() == []
    tables.pass_time(HOUR + timedelta(minutes=3))
    here = tables.one("SELECT clock_timestamp()")
    ran(tables, (1, "succeeded", "1 row", here - timedelta(minutes=1), here))
    assert read(call, tables.url) == 1
    assert await one.settle() == []
    (run,) = tables.values("SELECT plan_time, trigger, status, started_at, output FROM executions")
    assert run[:3] == (at, "schedule", "SUCCESS") and run[4] == "1 row"
    assert at < run[3] <= at + timedelta(minutes=2)
    assert tables.violations() == []


@pytest.mark.parametrize(
    ("edits", "more", "count"),
    [
        ([], ["--source", "main"], 1),
        ([{"handler": "python", "target": {"python": "tests:work"}}], [], 1),
        ([], ["--source", "other"], None), ([{"labels": {"pg_cron": "x"}}], [], None),
        ([{"retired_at": "2020-01-01Z"}], [], None),
    ],
)  # fmt: skip
def test_the_jobs_are_those_that_were_observed_and_have_the_label_F105(
    tables: Ledger, call: Call, edits: list[dict[str, Any]], more: list[str], count: int | None
) -> None:
    now = tables.now()
    ran(tables, (1, "succeeded", "", now, now))
    for edit in edits:
        tables.edit("tidy", **edit)
    if count is None:
        given = ("import", "pg_cron", "--history", "--from", tables.url, *more)
        refused(call(*given), "has the label pg_cron", "import pg_cron --observe")
    else:
        assert read(call, tables.url, *more) == count


@pytest.mark.parametrize(
    ("change", "more", "told"),
    [
        ("DROP SCHEMA cron CASCADE", "", 'relation "cron.job" does not exist; use the database'),
        ("DROP TABLE cron.job_run_details", "", '"cron.job_run_details" does not exist'),
        ("-c role=pg_monitor", "", "--from: permission denied for schema cron"),
        ("-c cron.log_run=off", "", "set cron.log_run = on"),
        ("", "--observe --as-user", "omit --observe, --as-user"),
    ],
)
def test_a_history_that_cannot_be_read_is_refused_F105(
    tables: Ledger, call: Call, change: str, more: str, told: str
) -> None:
    """`change`: a statement, or options of the connection."""
    if change.startswith("DROP"):
        tables.values(change)
    url = make_conninfo(tables.url, options=change if change.startswith("-c") else "")
    refused(call("import", "pg_cron", "--history", "--from", url, *more.split()), told)
    assert tables.values(REPORTS) == []


def test_a_job_with_scopes_is_named_and_the_others_are_reported_F105(
    tables: Ledger, call: Call
) -> None:
    tables.values("INSERT INTO cron.job VALUES (8, ''), (9, '')")
    tables.job("by-tenant", handler="observed", labels={"pg_cron": "8"}, scope_kind="tenant")
    tables.job("by-region", handler="observed", labels={"pg_cron": "9"})
    tables.edit("by-region", scope_kind="region")
    for runid in (7, 8, 9):
        ran(tables, (runid, "succeeded", "", tables.now(), tables.now()), jobid=runid)
    given = ("import", "pg_cron", "--history", "--from", tables.url)
    told = [f"job '{name}': its runs are not reported" for name in ("by-tenant", "by-region")]
    refused(call(*given), *told, code=1)
    assert [run[0] for run in tables.values(REPORTS)] == [7]


def test_a_job_that_replicas_may_take_over_is_an_observed_job_F105(
    tables: Ledger, call: Call
) -> None:
    tables.job("own", observed=True, labels={"pg_cron": "8"})
    ran(tables, (1, "succeeded", "", tables.now(), tables.now()), jobid=8)
    given = ("import", "pg_cron", "--history", "--from", tables.url)
    refused(call(*given), "job 'own': pg_cron has no job 8", code=1)
    assert len(tables.values(REPORTS)) == 1


@needs_pg_cron
@pytest.mark.slow
def test_the_history_of_pg_cron_itself_is_reported_F105(
    ledger: Ledger, call: Call, tmp_path: Path
) -> None:
    file, url = str(tmp_path / "c.toml"), f"host={tmp_path} user=postgres"
    with pg_cron(tmp_path, STARTS[0]) as connection:
        connection.execute("CREATE EXTENSION pg_cron")
        for name, command in (("tidy", "SELECT 1"), ("broken", "SELECT 1 / 0")):
            connection.execute("SELECT cron.schedule(%s, '* * * * *', %s)", (name, command))
        said = call("import", "pg_cron", "--observe", "--from", url, "-o", file)
        assert said.exit_code == 0, said.output
        assert call("jobs", "apply", file, "--source", "pg_cron").exit_code == 0

        def ended() -> set[str]:
            return {one for (one,) in connection.execute(
                "SELECT status FROM cron.job_run_details"
            )}  # fmt: skip

        until("a run of each job", lambda: ended() >= {"succeeded", "failed"})
        connection.execute("SELECT cron.alter_job(jobid, active => false) FROM cron.job")
        until("the ends of all runs", lambda: ended() == {"succeeded", "failed"})
        runs = rows(connection)
        assert read(call, url, "--source", "pg_cron") == len(runs)
        assert read(call, url) == 0
    found = ledger.values(
        "SELECT run_key, job_name, CASE WHEN error IS NULL THEN 'succeeded' ELSE 'failed' END,"
        " coalesce(error, output) FROM reports ORDER BY id"
    )
    assert sorted(found) == runs
    assert ("1 row" in str(found), "division by zero" in str(found)) == (True, True)


def rows(connection: psycopg.Connection) -> list[tuple[Any, ...]]:
    """Return the runs of pg_cron as the ledger has them."""
    return sorted(connection.execute(
        "SELECT 'pg_cron:' || d.runid, j.jobname, d.status, d.return_message"
        " FROM cron.job_run_details d JOIN cron.job j USING (jobid)"
    ))  # fmt: skip

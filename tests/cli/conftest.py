"""The command line as a person uses it: arguments in, what is printed and an exit code out."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from cronledger.cli import main
from tests.cli.support.daemon import Run
from tests.waiting import PATIENCE

Cli = Callable[..., Result]
Ask = Callable[..., list[tuple[Any, ...]]]
Start = Callable[..., Run]

JOBS = """
[jobs.hourly]
schedule = "0 * * * *"
timezone = "Europe/Berlin"
description = "Every hour."
command = ["true"]

[jobs.tenants]
schedule = "H 3 * * *"
scope_kind = "tenant"
scopes = ["acme", "globex"]
http = { url = "https://user:hunter2@example.com/x", headers = { Authorization = "hunter2" } }

[jobs.manual]
command = { }
"""
JOBS = JOBS.replace("command = { }", 'command = "echo $SECRET"\nenv = { SECRET = "hunter2" }')


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The working directory is empty, and no CRONLEDGER_* variable is set, except one.

    A busy server may need longer for a connection than a command waits.
    """
    for name in list(os.environ):
        if name.startswith("CRONLEDGER_") and not name.startswith("CRONLEDGER_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CRONLEDGER_CONNECT_TIMEOUT", f"{PATIENCE:.0f}s")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def bare() -> Cli:
    """Call the command line without a database."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments)

    return call


@pytest.fixture
def cli(bare: Cli, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Call the command line on a fresh migrated database."""
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", database_url)
    return bare


@pytest.fixture
def ask(database_url: str) -> Iterator[Ask]:
    """Run one statement on the database of the test, and return its rows."""
    with psycopg.connect(database_url, autocommit=True) as connection:

        def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
            found = connection.execute(statement.encode(), values or None)
            return found.fetchall() if found.description is not None else []

        yield run


@pytest.fixture
def filled(cli: Cli, surroundings: Path, ask: Ask) -> Cli:
    """The same with the jobs above and executions 1 (SUCCESS), 2 (FAILED), 3 (RUNNING).

    The plan_times are not after the cursor, even if a second begins between the two statements.
    """
    (surroundings / "jobs.toml").write_text(JOBS)
    applied = cli("jobs", "apply", "jobs.toml")
    assert applied.exit_code == 0, applied.output
    ask(
        "INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status,"
        " trigger, revision, queue, due_at, attempt, max_attempts, runner_id, lease_token,"
        " heartbeat_at, stale_after, started_at, finished_at, duration_ms, output, error_code)"
        " SELECT 'hourly', 'global', 'global', base - n * interval '1 h', status, 'schedule',"
        " 1, 'default', base - n * interval '1 h', 1, 1, 'r1', gen_random_uuid(), base,"
        " base + interval '1 day', base, CASE WHEN status <> 'RUNNING' THEN base END,"
        " CASE WHEN status <> 'RUNNING' THEN 12 END,"
        " CASE WHEN n = 2 THEN E'line 1\\nline 2' END,"
        " CASE WHEN status = 'FAILED' THEN 'exit_code' END"
        " FROM (VALUES (2, 'SUCCESS'), (1, 'FAILED'), (0, 'RUNNING')) v(n, status),"
        " (SELECT date_trunc('second', planned_through) AS base FROM cronledger.schedules"
        "  WHERE job_name = 'hourly') planned ORDER BY n DESC"
    )
    ask(
        "INSERT INTO cronledger.runners (id, host, pid, version, state, queues, slots,"
        " heartbeat_at, stale_after) SELECT id, 'h', 1, '0.1.0', 'running', '{default}', 10,"
        " now - ago, now - ago + lease"
        " FROM (VALUES ('alive', interval '0', interval '1 h'), ('gone', '1 min', '20 s'))"
        " v(id, ago, lease),"
        " cronledger.db_now() now"
    )
    return cli


@pytest.fixture
def start(surroundings: Path, database_url: str) -> Iterator[Start]:
    """Start a daemon in the working directory on a fresh database."""
    started: list[Run] = []

    def begin(*arguments: str, **variables: str) -> Run:
        environment = {**os.environ, "CRONLEDGER_DATABASE_URL": database_url, **variables}
        started.append(Run(surroundings, environment, "run", *arguments))
        return started[-1]

    yield begin
    for run in started:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()

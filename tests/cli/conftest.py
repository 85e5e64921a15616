"""The command line as a person uses it: arguments in, what is printed and an exit code out."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from cronledger.cli import main
from tests.cli.support.daemon import Start, starter
from tests.db.support import rows
from tests.waiting import PATIENCE

Cli = Callable[..., Result]
Ask = Callable[..., list[tuple[Any, ...]]]
HOUR = timedelta(hours=1)

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
command = "echo $SECRET"
env = { SECRET = "hunter2" }
"""


@pytest.fixture(autouse=True)
def surroundings(clean_environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The working directory is empty, and no CRONLEDGER_* variable is set, except one.

    A busy server may need longer for a connection than a command waits.
    """
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
def filled(cli: Cli, surroundings: Path, db: rows.Db) -> Cli:
    """The same with the jobs above and executions 1 (SUCCESS), 2 (FAILED), 3 (RUNNING).

    The plan_times are not after the cursor, even if a second begins between the two statements.
    """
    (surroundings / "jobs.toml").write_text(JOBS)
    applied = cli("jobs", "apply", "jobs.toml")
    assert applied.exit_code == 0, applied.output
    through = "SELECT planned_through FROM cronledger.schedules WHERE job_name = 'hourly'"
    base = rows.value(db, through).replace(microsecond=0)
    columns: dict[str, dict[str, Any]] = {
        "SUCCESS": {"plan_time": base - 2 * HOUR, "output": "line 1\nline 2"},
        "FAILED": {"plan_time": base - HOUR, "error_code": "exit_code", "error_msg": None},
        "RUNNING": {"plan_time": base, "stale_after": base + 24 * HOUR},
    }
    for status, more in columns.items():
        rows.execution(db, status, "hourly", max_attempts=1, **more)
    now = rows.now(db)
    rows.runner(db, "alive", stale_after=now + HOUR)
    rows.runner(db, "gone", heartbeat_at=now - HOUR / 60, stale_after=now - HOUR / 90)
    return cli


@pytest.fixture
def start(surroundings: Path, database_url: str) -> Iterator[Start]:
    """Start a daemon in the working directory on a fresh database."""
    with starter(surroundings, "run", CRONLEDGER_DATABASE_URL=database_url) as start:
        yield start

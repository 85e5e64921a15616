"""A replica inside a host program: what it needs is named, and its logs are the host's affair."""

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from cronledger.declaring.app import App
from cronledger.ledger.migrate import MigrationError, migrate
from cronledger.replica import Replica
from cronledger.settings import Settings
from tests.processes import clean_environ

HOST = """
import asyncio, logging, sys
from cronledger import App
from cronledger.replica import Replica
from cronledger.settings import Settings

async def main():
    async with Replica(App("host"), url=sys.argv[1]{settings}):
        print("the host's own output")

{before}
asyncio.run(main())
"""


def run_host(
    url: str, directory: Path, *, before: str = "", settings: str = "", **variables: str
) -> str:
    """Return the standard error of a host program, to whose standard output nothing is added."""
    program = directory / "host.py"
    program.write_text(HOST.replace("{settings}", settings).replace("{before}", before))
    ended = subprocess.run(
        [sys.executable, str(program), url], cwd=directory, env={**clean_environ(), **variables},
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "the host's own output\n"
    return ended.stderr


RUNTIME = "cronledger.engine.runtime.runtime"
INFO = "logging.basicConfig(level=logging.INFO, format='%(name)s %(levelname)s %(message)s')"
STRUCTLOG = (
    "import structlog; structlog.configure("
    "logger_factory=structlog.PrintLoggerFactory(sys.stderr),"
    " processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()])"
)


@pytest.mark.slow
def test_a_host_that_configures_nothing_sees_nothing(database_url: str, tmp_path: Path) -> None:
    assert run_host(database_url, tmp_path) == ""


@pytest.mark.long
def test_the_hosts_logging_decides(database_url: str, tmp_path: Path) -> None:
    err = run_host(database_url, tmp_path, before=INFO)
    started = [x for x in err.splitlines() if x.startswith(f"{RUNTIME} INFO runner_started")]
    assert len(started) == 1
    assert "queues=default" in started[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "line"),
    [(INFO, f"{RUNTIME} INFO runner_stopped"), (STRUCTLOG, '"event": "runner_stopped"')],
    ids=["logging", "structlog"],
)
def test_the_log_level_takes_effect(
    database_url: str, tmp_path: Path, before: str, line: str
) -> None:
    assert line in run_host(database_url, tmp_path, before=before)
    given = ", settings=Settings(log_level='warning')"
    by_argument = run_host(database_url, tmp_path, before=before, settings=given)
    by_variable = run_host(database_url, tmp_path, before=before, CRONLEDGER_LOG_LEVEL="warning")
    for shown in (by_argument + by_variable).splitlines():
        assert "server_not_durable" in shown  # the server of the tests


@pytest.mark.slow
def test_the_log_format_takes_effect(database_url: str, tmp_path: Path) -> None:
    for before in ("", INFO):
        err = run_host(database_url, tmp_path, before=before, CRONLEDGER_LOG_FORMAT="json")
        lines = [json.loads(line) for line in err.splitlines() if not line.startswith("psycopg")]
        (started,) = [line for line in lines if line["event"] == "runner_started"]
        assert (started["level"], started["logger"]) == ("info", RUNTIME)
        assert started["queues"] == ["default"]
        assert {"time", "runner", "host"} <= started.keys()


@pytest.mark.long
async def test_a_fresh_database_and_an_older_schema_name_the_remedy(
    empty_database_url: str,
) -> None:
    for applied in (False, True):
        replica = Replica(App("host"), url=empty_database_url, settings=Settings(), applied=applied)
        with pytest.raises(MigrationError, match="run `cronledger migrate`") as raised:
            await replica.start()
        assert "has no ledger" in str(raised.value)
        assert "cronledger.ledger.migrate" in str(raised.value)
    migrate(empty_database_url)
    async with Replica(App("host"), url=empty_database_url, settings=Settings()):
        pass
    with psycopg.connect(empty_database_url, autocommit=True) as c:
        c.execute(
            "UPDATE cronledger.schema_migrations SET checksum = 'older'"
            " WHERE name = 'functions and views'"
        )
    with pytest.raises(MigrationError, match="functions and views is not applied to"):
        await Replica(App("host"), url=empty_database_url, settings=Settings()).start()

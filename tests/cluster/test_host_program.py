"""A replica inside a host program: what it needs is named, and its logs are the host's affair."""

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from cronledger.declaring.app import App
from cronledger.ledger.migrate import MigrationError
from cronledger.replica import Replica
from cronledger.settings import Settings
from tests.processes import clean_environ

HOST = """
import asyncio, logging, sys
from cronledger import App
from cronledger.replica import Replica

async def main():
    async with Replica(App("host"), url=sys.argv[1]):
        print("the host's own output")

{before}
asyncio.run(main())
"""


def run_host(url: str, directory: Path, *, before: str = "", **variables: str) -> str:
    """Return the standard error of a host program, to whose standard output nothing is added."""
    program = directory / "host.py"
    program.write_text(HOST.replace("{before}", before))
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "line"),
    [(INFO, f"{RUNTIME} INFO runner_started"), (STRUCTLOG, '"event": "runner_stopped"')],
    ids=["logging", "structlog"],
)
def test_the_log_level_takes_effect(
    database_url: str, tmp_path: Path, before: str, line: str
) -> None:
    assert line in run_host(database_url, tmp_path, before=before)
    quiet = run_host(database_url, tmp_path, before=before, CRONLEDGER_LOG_LEVEL="warning")
    for shown in quiet.splitlines():
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
async def test_a_start_on_an_older_schema_names_the_remedy(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as c:
        c.execute(
            "UPDATE cronledger.schema_migrations SET checksum = 'older'"
            " WHERE name = 'functions and views'"
        )
    with pytest.raises(MigrationError, match="functions and views is not applied to"):
        await Replica(App("host"), url=database_url, settings=Settings()).start()

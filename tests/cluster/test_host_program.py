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
) -> tuple[str, str]:
    """Standard output and standard error of a host program."""
    program = directory / "host.py"
    program.write_text(HOST.replace("{settings}", settings).replace("{before}", before))
    ended = subprocess.run(
        [sys.executable, str(program), url], cwd=directory, env={**clean_environ(), **variables},
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, ended.stderr


RUNTIME = "cronledger.engine.runtime.runtime"
INFO = "logging.basicConfig(level=logging.INFO, format='%(name)s %(levelname)s %(message)s')"
STRUCTLOG = (
    "import structlog; structlog.configure("
    "logger_factory=structlog.PrintLoggerFactory(sys.stderr),"
    " processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()])"
)


@pytest.mark.slow
def test_a_host_that_configures_nothing_sees_nothing(database_url: str, tmp_path: Path) -> None:
    out, err = run_host(database_url, tmp_path)
    assert out == "the host's own output\n"
    assert err == ""


def test_the_hosts_logging_decides(database_url: str, tmp_path: Path) -> None:
    out, err = run_host(database_url, tmp_path, before=INFO)
    assert out == "the host's own output\n"
    started = [x for x in err.splitlines() if x.startswith(f"{RUNTIME} INFO runner_started")]
    assert len(started) == 1
    assert "queues=default" in started[0]


@pytest.mark.slow
def test_a_structlog_of_the_host_decides(database_url: str, tmp_path: Path) -> None:
    out, err = run_host(database_url, tmp_path, before=STRUCTLOG)
    assert out == "the host's own output\n"
    events = [json.loads(line)["event"] for line in err.splitlines()]
    assert {"runner_started", "runner_stopped"} <= set(events)


def warnings_only(lines: str) -> bool:
    """Whether nothing was logged but that the server of the tests is not durable."""
    return all("server_not_durable" in line for line in lines.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("before", [INFO, STRUCTLOG], ids=["logging", "structlog"])
def test_the_log_level_takes_effect(database_url: str, tmp_path: Path, before: str) -> None:
    given = ", settings=Settings(log_level='warning')"
    _, err = run_host(database_url, tmp_path, before=before, settings=given)
    assert warnings_only(err)
    _, err = run_host(database_url, tmp_path, before=before, CRONLEDGER_LOG_LEVEL="warning")
    assert warnings_only(err)


@pytest.mark.slow
def test_the_log_format_takes_effect(database_url: str, tmp_path: Path) -> None:
    for before in ("", INFO):
        out, err = run_host(database_url, tmp_path, before=before, CRONLEDGER_LOG_FORMAT="json")
        assert out == "the host's own output\n"
        lines = [json.loads(line) for line in err.splitlines() if not line.startswith("psycopg")]
        (started,) = [line for line in lines if line["event"] == "runner_started"]
        assert (started["level"], started["logger"]) == ("info", RUNTIME)
        assert started["queues"] == ["default"]
        assert {"time", "runner", "host"} <= started.keys()


async def test_a_fresh_database_names_the_remedy(empty_database_url: str) -> None:
    for applied in (False, True):
        replica = Replica(App("host"), url=empty_database_url, settings=Settings(), applied=applied)
        with pytest.raises(MigrationError, match="run `cronledger migrate`") as raised:
            await replica.start()
        assert "has no ledger" in str(raised.value)
        assert "cronledger.ledger.migrate" in str(raised.value)
    migrate(empty_database_url)
    async with Replica(App("host"), url=empty_database_url, settings=Settings()):
        pass


async def test_an_older_schema_names_what_it_lacks(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as c:
        c.execute(
            "UPDATE cronledger.schema_migrations SET checksum = 'older'"
            " WHERE name = 'functions and views'"
        )
    replica = Replica(App("host"), url=database_url, settings=Settings())
    with pytest.raises(MigrationError, match="functions and views is not applied to"):
        await replica.start()

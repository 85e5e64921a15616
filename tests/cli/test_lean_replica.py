"""A replica imports only what its jobs and its settings need."""

import re
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.cli.conftest import Ask
from tests.cli.support.daemon import Start
from tests.processes import clean_environ

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
NEEDED = {
    "annotated_types", "click", "croniter", "cronledger", "dateutil", "dotenv", "psycopg",
    "psycopg_binary", "psycopg_pool", "pydantic", "pydantic_core",
    "pydantic_settings", "six", "structlog", "typing_extensions", "typing_inspection", "tzdata",
}  # fmt: skip
"""The packages that a replica with command jobs imports, beside those of Python."""
OF_STRUCTLOG = {"attr", "greenlet", "pygments", "rich"}
"""Packages that structlog imports if they are installed."""
OF_COMMANDS = {"tomlkit", "wcwidth"}
"""Dependencies that other commands import: `import-crontab`, and those that print tables."""

UNUSED = (
    "audit", "client", "contrib", "embedded", "engine.addresses", "engine.alerting.posts",
    "engine.monitoring.ping_requests", "engine.running.handlers.http", "explain",
    "metrics.replica_metrics", "process.health", "process.summary",
    "testing", "tracing.spans", "web",
)  # fmt: skip
"""Modules of cronledger that it does not import."""

COMMAND = """
[jobs.tick]
schedule = "* * * * * *"
command = ["true"]
"""
HTTP = """
[jobs.call]
schedule = "@yearly"
http = { url = "https://example.com/" }
"""
PROFILED = {"PYTHONPROFILEIMPORTTIME": "1"}  # Python writes a line for each import


def imported(err: str) -> set[str]:
    return set(re.findall(r"^import time:.*\| +(\S+)$", err, re.MULTILINE))


def of_the_interpreter() -> set[str]:
    """The modules that Python imports here without a program, such as those of .pth files."""
    program = [sys.executable, "-c", ""]
    ran = subprocess.run(
        program, env={**clean_environ(), **PROFILED}, capture_output=True, text=True, check=True
    )
    return imported(ran.stderr)


def packages(modules: set[str]) -> set[str]:
    """The installed packages of these modules."""
    return {name.partition(".")[0] for name in modules} & set(packages_distributions())


def test_a_replica_with_commands_imports_no_library_that_it_does_not_use(
    start: Start, ask: Ask
) -> None:
    Path("cronledger.toml").write_text(COMMAND)
    run = start(CRONLEDGER_LOG_FORMAT="json", **PROFILED)
    run.until(lambda: ask("SELECT FROM cronledger.executions WHERE status = 'SUCCESS' LIMIT 1"))
    run.signal(signal.SIGTERM)
    assert run.end() == 0, run.err
    modules = imported(run.err)
    assert "cronledger.engine.running.handlers.command" in modules
    assert packages(modules - of_the_interpreter()) <= NEEDED | OF_STRUCTLOG
    unused = tuple(f"cronledger.{name}" for name in UNUSED)
    assert [name for name in modules if name.startswith(unused)] == []


def test_each_dependency_is_imported_by_such_a_replica_or_by_other_commands() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {re.split(r"[\[<>=]", one)[0] for one in project["dependencies"]}
    assert {name.replace("-", "_") for name in names} <= NEEDED | OF_COMMANDS


def test_what_its_jobs_need_is_imported_before_it_is_ready(start: Start) -> None:
    Path("cronledger.toml").write_text(HTTP)
    run = start(**PROFILED)
    run.until_event("runner_started")
    assert "cronledger.engine.running.handlers.http" in imported(run.err)

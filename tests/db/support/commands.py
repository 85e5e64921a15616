"""The command line on the database of a test, in the process of the test."""

import json
from typing import Any

from click.testing import CliRunner, Result

from cronledger.cli import main


def command(url: str, *arguments: str, exit_code: int = 0) -> Result:
    """Run a command, which ends with this exit code."""
    ran = CliRunner().invoke(main, arguments, env={"CRONLEDGER_DATABASE_URL": url})
    assert ran.exit_code == exit_code, ran.output
    return ran


def read(url: str, *arguments: str) -> Any:
    """Return what a command prints with `--json`."""
    return json.loads(command(url, *arguments, "--json").stdout)

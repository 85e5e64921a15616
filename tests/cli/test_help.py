"""Help, and the imports that the list of commands costs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cronledger.cli import COMMANDS
from tests.cli.conftest import Cli

HEAVY = (  # noqa: SIM905
    "aiohttp asyncio croniter cronledger.settings psycopg pydantic rich structlog zoneinfo"
).split()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], []])
def test_the_list_of_commands_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from cronledger.cli import main\n"
        f"try: main({arguments!r}, prog_name='cronledger')\n"
        "except SystemExit: pass\n"
        f"print('HEAVY', *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert ran.stdout.splitlines()[-1] == "HEAVY"
    assert "cronledger" in ran.stdout + ran.stderr


def test_help_lists_every_command(bare: Cli) -> None:
    said = bare("--help")
    assert said.exit_code == 0
    for name, (_, short) in COMMANDS.items():
        assert f"  {name} " in said.stdout
        assert short in said.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(bare: Cli, name: str) -> None:
    said = bare(name, "--help")
    assert said.exit_code == 0
    assert said.stdout.startswith(f"Usage: main {name} ")


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["jobs", "nonsense"], ["next"], ["next", "@daily", "--count", "0"]],
    ids=" ".join,
)
def test_usage_errors_exit_2(bare: Cli, arguments: list[str]) -> None:
    said = bare(*arguments)
    assert said.exit_code == 2
    assert "Usage:" in said.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    """By the variable that docs/cli.md names; what it prints offers the commands."""
    program = str(Path(sys.executable).parent / "cronledger")

    def ask(what: str, **variables: str) -> str:
        environ = {**os.environ, "_CRONLEDGER_COMPLETE": f"{shell}_{what}", **variables}
        done = subprocess.run([program], env=environ, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.stdout

    script = ask("source")
    assert "_CRONLEDGER_COMPLETE" in script and f"{shell}_complete" in script
    words = {"COMP_WORDS": "cronledger exec", "COMP_CWORD": "exec" if shell == "fish" else "1"}
    assert "executions" in ask("complete", **words)

"""Help, and the imports that the list of commands costs."""

import subprocess
import sys

import click

from cronledger.cli import COMMANDS
from tests.cli.conftest import Cli
from tests.cli.support.commands import commands
from tests.cli.support.results import done, refused
from tests.waiting import PATIENCE

HEAVY = (  # noqa: SIM905
    "aiohttp asyncio croniter cronledger.settings psycopg pydantic rich structlog zoneinfo"
).split()


def test_the_list_of_commands_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from cronledger.cli import main\n"
        "for arguments in (['--help'], ['--version'], []):\n"
        "    try: main(arguments, prog_name='cronledger')\n"
        "    except SystemExit: pass\n"
        f"print('HEAVY', *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    assert ran.stdout.splitlines()[-1] == "HEAVY"
    assert "cronledger" in ran.stdout + ran.stderr


def test_every_command_is_listed_and_has_help(bare: Cli) -> None:
    said = done(bare, "--help")
    for name, (_, short) in COMMANDS.items():
        assert f"  {name} " in said.stdout
        assert short in said.stdout
        assert bare(name, "--help").stdout.startswith(f"Usage: main {name} "), name


def test_every_command_with_times_states_their_zone() -> None:
    found = [one for one in commands().values() if _has_times(one)]
    assert {"skip", "adopt", "plan", "backfill", "why", "verify"} <= {one.name for one in found}
    for one in found:
        help_text = " ".join((one.help or "").split())
        assert "A time without an offset is read in " in help_text, one.name


def _has_times(command: click.Command) -> bool:
    texts = (one.metavar or "" for one in command.params)
    return any(word in text for text in texts for word in ("ISO", "TIME", "FROM/UNTIL"))


def test_usage_errors_exit_2(bare: Cli) -> None:
    for arguments in (
        ["nonsense"], ["jobs", "nonsense"], ["next"], ["next", "@daily", "--count", "0"],
        ["import", "crontab", "--user", "--system"],
    ):  # fmt: skip
        refused(bare(*arguments), "Usage:")

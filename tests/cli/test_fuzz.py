"""The short form of `python -m tests.fuzz`: three rounds over every command of the command line."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support.commands import commands

pytestmark = pytest.mark.tools

ROUNDS = 3
SEED = 1


@pytest.mark.slow
def test_bad_input_causes_no_traceback_no_hang_and_no_leak() -> None:
    calls = ROUNDS * len(commands())
    said = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--seed", str(SEED), "--commands", str(calls)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{calls} commands" in said.stdout

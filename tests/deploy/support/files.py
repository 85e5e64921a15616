"""The files of deploy/, and the programs that check them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from cronledger.cli import main

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
BIN = str(Path(sys.executable).parent)


def needs(program: str, package: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test where the program is not installed."""
    reason = f"there is no {program}: on Debian, apt-get install {package}"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


def call(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program of this environment or of PATH to its end, and return what it printed."""
    path = os.pathsep.join([BIN, os.environ["PATH"]])
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd, env={**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip


def check(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a program that has to succeed, and return its output."""
    done = call(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def parsed(*words: str) -> click.Context:
    """Return what `cronledger WORDS` would run. Raises click.UsageError for a wrong one."""
    with click.Context(main, info_name="cronledger") as context:
        command = main.get_command(context, words[0])
        if command is None:
            raise click.UsageError(f"there is no command {words[0]}")
        return command.make_context(words[0], [*words[1:]], parent=context)

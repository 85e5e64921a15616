"""An earlier commit, in a directory and an environment of its own, for the same run."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.product import ROOT, Product

COMMIT = "134a3cb"
"""The commit to which the targets of CPU time refer: before calendars, gates, windows and hosts."""


@contextmanager
def baseline() -> Iterator[Product]:
    """Check the commit out, install it with its dependencies, and remove both at the end.

    Raises CalledProcessError if this is not a clone that has the commit.
    """
    directory = Path(tempfile.mkdtemp(prefix="cronledger-baseline-"))
    tree, environment = directory / "tree", directory / "environment"
    try:
        _run("git", "worktree", "add", "--quiet", "--detach", str(tree), COMMIT)
        python = environment / "bin" / "python"
        _run(sys.executable, "-m", "venv", str(environment))
        _run(
            str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
            "-e", str(tree),
        )  # fmt: skip
        yield Product(tree, python)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        _run("git", "worktree", "prune")


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)

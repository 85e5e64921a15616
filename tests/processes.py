"""Processes: their environment, their state and their children."""

import os
import sys
from contextlib import suppress
from pathlib import Path

CRONLEDGER = (sys.executable, "-c", "from cronledger.cli import main; main()")
"""The command line as a process."""


def clean_environ() -> dict[str, str]:
    """Return the environment without settings of cronledger."""
    return {key: v for key, v in os.environ.items() if not key.startswith("CRONLEDGER_")}


def alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    """Return the child processes of `pid`."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread ended meanwhile
            found += map(int, (thread / "children").read_text().split())
    return found

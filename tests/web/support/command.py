"""`cronledger web`, or another command that serves, as a process."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.support import daemon
from tests.cli.support.daemon import Run, Start

__all__ = ["Start", "address", "starter"]


@contextmanager
def starter(directory: Path, database_url: str, command: str = "web") -> Iterator[Start]:
    """Yield a function that starts the command, on `database_url` unless a variable names another.

    What still runs at the end is killed.
    """
    with daemon.starter(directory, command, CRONLEDGER_DATABASE_URL=database_url) as start:
        yield start


def address(run: Run) -> str:
    """Return the address that the command prints once it accepts requests."""
    first = re.compile(r"^cronledger (?:web|metrics): (\S+)$", re.MULTILINE)
    run.until(lambda: first.search(run.err))
    found = first.search(run.err)
    assert found is not None
    return found[1]

"""`cronledger web`, or another command that serves, as a process."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.support.daemon import Run
from tests.processes import clean_environ

Start = Callable[..., Run]


@contextmanager
def starter(directory: Path, database_url: str, command: str = "web") -> Iterator[Start]:
    """Yield a function that starts the command, on `database_url` unless a variable names another.

    What still runs at the end is killed.
    """
    started: list[Run] = []

    def made(*arguments: str, **variables: str) -> Run:
        environment = clean_environ() | {"CRONLEDGER_DATABASE_URL": database_url} | variables
        own = directory / str(len(started))
        own.mkdir()
        started.append(Run(own, environment, command, *arguments))
        return started[-1]

    yield made
    for run in started:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()


def address(run: Run) -> str:
    """Return the address that the command prints once it accepts requests."""
    first = re.compile(r"^cronledger (?:web|metrics): (\S+)$", re.MULTILINE)
    run.until(lambda: first.search(run.err))
    found = first.search(run.err)
    assert found is not None
    return found[1]

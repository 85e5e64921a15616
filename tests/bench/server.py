"""A durable server for measurements: fsync on, 1 GB of shared buffers, removed afterwards."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from cronledger.embedded.server import Embedded, find_binaries
from tests.database import chosen_binaries

SETTINGS = {
    "fsync": "on", "shared_buffers": "1GB", "max_wal_size": "8GB", "max_connections": "300",
    "track_functions": "none", "log_line_prefix": "%d ",
}  # fmt: skip
"""With the name of the database in each line of the log, so that statements can be counted."""

REPORTED = (
    "server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_level",
    "shared_buffers", "max_wal_size", "max_connections", "checkpoint_timeout", "autovacuum",
)  # fmt: skip
"""The settings that a report shows."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: the DSN of its superuser, and its log."""

    dsn: str
    log: Path
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Create an empty database, and drop it at the end. Yields its DSN."""
        name = f"bench_{next(self._numbers)}"
        with psycopg.connect(self.dsn, autocommit=True) as c:
            c.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield urlsplit(self.dsn)._replace(path=f"/{name}").geturl()
        finally:
            with psycopg.connect(self.dsn, autocommit=True) as c:
                c.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def settings(self) -> dict[str, str]:
        with psycopg.connect(self.dsn) as c:
            return {name: str(c.execute(f"SHOW {name}".encode()).fetchall()[0][0])
                    for name in REPORTED}  # fmt: skip


@contextlib.contextmanager
def durable_server(
    binaries: str | None, more: Callable[[Path], Mapping[str, str]] = lambda _: {}
) -> Iterator[Server]:
    """Start a server in a directory for temporary files, and remove both at the end.

    `binaries`: a bin directory; None: CRONLEDGER_TEST_BINARIES, or else the pip package. `more`:
    returns further settings, given the directory of the data and of the socket.
    """
    programs = find_binaries(Path(binaries).absolute() if binaries else chosen_binaries())
    directory = Path(tempfile.mkdtemp(prefix="cronledger-bench-"))
    try:
        base = directory / "server"
        data = base / f"postgres-{programs.major}"
        with Embedded(base, programs.directory, {**SETTINGS, **more(data)}) as embedded:
            yield Server(embedded.start(), data / "server.log")
    finally:
        shutil.rmtree(directory, ignore_errors=True)

"""A durable server of one's own for measurements: fsync on, 1 GB of shared buffers, gone after."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cronledger.embedded.server import Embedded, find_binaries

SETTINGS = {
    "fsync": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "max_connections": "60",
    "track_functions": "none",
}


@contextlib.contextmanager
def durable_server(binaries: str | None) -> Iterator[str]:
    """The DSN of a superuser. `binaries`: a bin directory; None: CRONLEDGER_TEST_BINARIES, else
    those of the pip package."""
    chosen = binaries or os.environ.get("CRONLEDGER_TEST_BINARIES")
    programs = find_binaries(Path(chosen).absolute() if chosen else None).directory
    # The pip package has no extensions.
    counts = any(programs.parent.glob("lib/**/pg_stat_statements.*"))
    settings = {**SETTINGS, "shared_preload_libraries": "pg_stat_statements" if counts else ""}
    directory = Path(tempfile.mkdtemp(prefix="cronledger-bench-"))
    try:
        base = directory / "server"
        with Embedded(base, programs, settings) as embedded:
            yield embedded.start()
    finally:
        shutil.rmtree(directory, ignore_errors=True)

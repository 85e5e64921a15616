"""A server of the system's PostgreSQL that preloads pg_cron (Debian: postgresql-15-cron)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cronledger.embedded.postmaster import DATABASE
from tests.bench.server import durable_server

MISSING = (
    "pg_cron is not installed, so it is left out. On Debian: apt-get install postgresql-15-cron"
)
LIBRARIES = "usr/lib/postgresql/*/lib/pg_cron.so"


def is_installed() -> bool:
    return _library() is not None


def _library() -> Path | None:
    return max(Path("/").glob(LIBRARIES), default=None)


@contextmanager
def server() -> Iterator[str]:
    """Start the server, and remove it at the end. Yields the DSN of the database of pg_cron."""
    library = _library()
    assert library is not None
    settings = {"shared_preload_libraries": "pg_cron", "cron.database_name": DATABASE}
    with durable_server(
        str(library.parents[1] / "bin"), lambda sockets: settings | {"cron.host": str(sockets)}
    ) as server:
        yield server.dsn

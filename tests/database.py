"""Where the tests' databases come from, and how a run makes and drops them.

A server: `CRONLEDGER_TEST_DATABASE_URL` (the DSN of a superuser), else a container where a
Docker engine answers within 2 s, else an embedded server that all workers of all runs share.
`CRONLEDGER_TEST_BINARIES` (a bin directory) chooses the embedded server's version, and
`CRONLEDGER_TEST_IMAGE` that of the container.

Databases are named after their run. Each worker of a run holds a shared advisory lock on that
name for as long as its connection lives, so whoever gets the lock exclusively knows that the
run is over, and drops what it left behind.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString, Self
from urllib.parse import quote, urlencode, urlsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from cronledger.embedded.postmaster import private_directory, server_pid
from cronledger.embedded.server import Embedded, find_binaries
from tests.cluster.support.clocks import inherited_offset
from tests.kept_database import KeptDatabase, adopt

DOCKER_SECONDS = 2.0
IN_USE_SECONDS = 20.0
IMAGE = os.environ.get("CRONLEDGER_TEST_IMAGE", "postgres:18-alpine")
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "jit": "off",  # Debian's packages and containers compile with LLVM, which costs 100 ms
    "max_connections": "300",
    "max_prepared_transactions": "4",
    "min_wal_size": "32MB",
    "max_wal_size": "128MB",
}
_MEMORY_BYTES = 2 * 1024**3
_RUN_LOCKS = 0x63726F6E  # advisory lock classes: one key per run,
_TEMPLATE_LOCK = (0x63726F6F, 0)  # and one for making a template (roles belong to the server)


@contextlib.contextmanager
def server(shared: Path) -> Iterator[str]:
    """The DSN of a superuser on a running server; `shared` is common to the run's workers.

    Raises what went wrong where there is none: tests without a database fail, never skip.
    """
    given = os.environ.get("CRONLEDGER_TEST_DATABASE_URL")
    if given:
        yield given
    elif docker_answers():
        with _container(shared) as dsn:
            yield dsn
    else:
        directory, binaries = _throwaway_directory()
        with Embedded(directory, binaries, SETTINGS) as embedded:
            yield embedded.start()


def _throwaway_directory() -> tuple[Path, Path]:
    """Kept between runs, for a fast start; in memory where there is some (no disk to wait for).

    A dated run (`tests.dated`) has a server of its own, because a server keeps the clock with
    which it was started.
    """
    binaries = find_binaries(chosen_binaries())
    base = private_directory(fast_directory() / f"cronledger-tests-{os.geteuid()}")
    return base / f"server-{binaries.version}{dated_suffix(inherited_offset())}", binaries.directory


def dated_suffix(offset: float) -> str:
    """Return the end of the name of a server's directory in a run whose clock is off by `offset`
    seconds."""
    return f"-dated{offset:+.0f}" if offset else ""


def chosen_binaries() -> Path | None:
    """The bin directory that CRONLEDGER_TEST_BINARIES names."""
    explicit = os.environ.get("CRONLEDGER_TEST_BINARIES")
    return Path(explicit) if explicit else None


def fast_directory() -> Path:
    """Memory where there is room in it, else the directory for temporary files."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > _MEMORY_BYTES
    return memory if roomy else Path(tempfile.gettempdir())


@contextlib.contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """A directory for servers of one's own; gone afterwards, and with it what a killed run left.

    Its owner holds a flock on the file `owner` in it; who gets that lock may clear it away.
    """
    for leftover in parent.glob("scratch-*"):
        with contextlib.suppress(OSError), (leftover / "owner").open("a") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _clear(leftover)
    unnamed = Path(tempfile.mkdtemp(prefix="new-", dir=parent))
    with (unnamed / "owner").open("a") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)  # before it has a name under which others clear it
        directory = unnamed.rename(parent / unnamed.name.replace("new-", "scratch-", 1))
        try:
            yield directory
        finally:
            _clear(directory)


def _clear(directory: Path) -> None:
    for pid_file in directory.glob("**/postmaster.pid"):
        pid = server_pid(pid_file.parent)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it may be about to end by itself
                os.kill(pid, signal.SIGQUIT)
    shutil.rmtree(directory, ignore_errors=True)


def docker_answers(seconds: float = DOCKER_SECONDS) -> bool:
    """Whether a Docker engine answers a ping where DOCKER_HOST, or its default, says."""
    host = urlsplit(os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock")
    try:
        if host.scheme == "unix":
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(seconds)
        else:
            address = (host.hostname or "localhost", host.port or 2375)
            connection = socket.create_connection(address, timeout=seconds)
        with connection:
            if host.scheme == "unix":
                connection.connect(host.path)
            if os.environ.get("DOCKER_TLS_VERIFY"):
                return True  # it accepts; the client library will shake hands
            connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return b" 200 " in connection.recv(64)
    except OSError:
        return False


@contextlib.contextmanager
def _container(shared: Path) -> Iterator[str]:
    """One container for the run: the first worker starts it, and stops it after all others."""
    from testcontainers.community.postgres import PostgresContainer

    address = shared / "container.dsn"
    container = None
    with contextlib.ExitStack() as stack:
        users = stack.enter_context((shared / "container.users").open("a"))
        with (shared / "container.lock").open("a") as mutex:
            fcntl.flock(mutex, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)
            if not address.exists():
                container = PostgresContainer(IMAGE, driver=None)
                options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
                container.with_command(f"postgres {options}").start()
                stack.callback(container.stop)
                address.write_text(container.get_connection_url())
        yield address.read_text()
        if container is not None:
            # The reaper ends the container with the process that started it, so we stay.
            fcntl.flock(users, fcntl.LOCK_UN)
            fcntl.flock(users, fcntl.LOCK_EX)
            address.unlink()


class Databases:
    """One worker's means to make and drop the databases of its run; a context manager.

    A test that is interrupted while it waits for the server leaves the connection in the middle of
    a statement: it is replaced then, as one that the server has ended.
    """

    def __init__(self, dsn: str, run: str) -> None:
        self._dsn = dsn
        self._parameters = {k: str(v) for k, v in conninfo_to_dict(dsn).items() if v is not None}
        self._run = hashlib.sha256(run.encode()).hexdigest()[:8]
        self._current = psycopg.connect(dsn, autocommit=True)
        self._entered = False
        # Advisory locks are of one database: its oid in the names keeps runs that were given
        # other maintenance databases of the same server out of each other's way.
        oid = self._value("SELECT oid FROM pg_database WHERE datname = current_database()")
        self._family = f"cronledger_test_{oid}_"
        self._count = 0
        durable = self._value("SHOW fsync") == "on"
        self._strategy = "wal_log" if durable else "file_copy"  # the latter: two checkpoints
        self._template: str | None = None
        self._kept: dict[str, tuple[str, KeptDatabase]] = {}  # by template

    def __enter__(self) -> Self:
        self._hold(self._connection)
        self._entered = True
        self._drop_leftovers()
        return self

    def __exit__(self, *_: object) -> None:
        for kept in self._kept.values():
            self._discard(*kept)
        connection = self._connection
        self._entered = False
        connection.execute(
            "SELECT pg_advisory_unlock_shared(%s, %s)", (_RUN_LOCKS, _key(self._run))
        )
        self._drop_leftovers()  # of this run too, if we are its last worker
        self._connection.close()

    @property
    def _connection(self) -> psycopg.Connection:
        """One that is free; with the lock of the run, once that is held."""
        if not _is_free(self._current):
            fresh = psycopg.connect(self._dsn, autocommit=True)
            if self._entered:
                self._hold(fresh)
            if not self._current.closed:
                # Its backend would go on waiting, and keep the locks it has.
                pid = self._current.info.backend_pid
                fresh.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
                self._current.close()
            self._current = fresh
        return self._current

    def _hold(self, connection: psycopg.Connection) -> None:
        connection.execute("SELECT pg_advisory_lock_shared(%s, %s)", (_RUN_LOCKS, _key(self._run)))

    def url(self, name: str) -> str:
        """The superuser's DSN of another database of the server."""
        query = {k: v for k, v in self._parameters.items() if k != "dbname"}
        return f"postgresql:///{quote(name)}?{urlencode(query, quote_via=quote)}"

    def template(self) -> str:
        """The name of the run's migrated database, made by the first worker that asks."""
        if self._template is None:
            self._template = self._make_template()
        return self._template

    def _make_template(self) -> str:
        from cronledger.ledger.migrate import migrate

        name = f"{self._family}{self._run}_template"
        building = f"{name}_building"
        self._execute("SELECT pg_advisory_lock(%s, %s)", *_TEMPLATE_LOCK)
        try:
            if not self._value("SELECT count(*) FROM pg_database WHERE datname = %s", name):
                self.drop(building)  # of a worker that was killed
                self._create(building, "template0")
                migrate(self.url(building))
                self._execute_ddl(
                    "ALTER DATABASE {} RENAME TO {}", sql.Identifier(building), sql.Identifier(name)
                )
                # Nobody may connect: a connection to the template would hold up every clone.
                self._execute_ddl(
                    "ALTER DATABASE {} WITH ALLOW_CONNECTIONS false", sql.Identifier(name)
                )
        finally:
            self._execute("SELECT pg_advisory_unlock(%s, %s)", *_TEMPLATE_LOCK)
        return name

    def create(self, template: str = "template0") -> str:
        """The name of a fresh database, a copy of `template`; a ledger in it is its own."""
        name = self.clone(template)
        if template != "template0":
            with psycopg.connect(self.url(name), autocommit=True) as connection:
                adopt(connection)
        return name

    @contextlib.contextmanager
    def lend(self, template: str | None = None) -> Iterator[str]:
        """Give the name of a database that is as fresh as a clone of `template` for the block.

        It is the one that was given before, if that could be restored. Without a name, the template
        is the migrated database of the run.
        """
        template = template or self.template()
        kept = self._kept.pop(template, None)
        if kept is not None and not kept[1].is_free():
            self._discard(*kept)
            kept = None
        if kept is None:
            name = self.clone(template)
            kept = name, KeptDatabase(self.url(name))
        try:
            yield kept[0]
        finally:
            if kept[1].restore() is None and template not in self._kept:
                self._kept[template] = kept
            else:
                self._discard(*kept)

    def discard(self, template: str) -> None:
        """Drop a template of a module's own, and the database that was kept for it."""
        if template in self._kept:
            self._discard(*self._kept.pop(template))
        self.drop(template)

    def _discard(self, name: str, kept: KeptDatabase) -> None:
        kept.close()
        self.drop(name)

    def clone(self, template: str) -> str:
        """The name of a fresh database, a copy of `template` as it is."""
        self._count += 1
        name = f"{self._family}{self._run}_{os.getpid()}_{self._count}"
        self._create(name, template)
        return name

    def drop(self, name: str) -> None:
        """There is no such database any more; who was connected to it is no more."""
        # DROP waits for leaving backends in steps of 100 ms; most are gone within one or two.
        deadline = time.monotonic() + 0.1
        others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s"
        while self._value(others, name) and time.monotonic() < deadline:
            time.sleep(0.002)
        prepared = "SELECT gid FROM pg_prepared_xacts WHERE database = %s"
        for (gid,) in self._connection.execute(prepared, [name]).fetchall():
            with psycopg.connect(self.url(name), autocommit=True) as connection:
                connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
        self._execute_ddl("DROP DATABASE IF EXISTS {} WITH (FORCE)", sql.Identifier(name))

    def _create(self, name: str, template: str) -> None:
        self._execute_ddl(
            "CREATE DATABASE {} TEMPLATE {} STRATEGY {}",
            sql.Identifier(name),
            sql.Identifier(template),
            sql.Identifier(self._strategy),
        )

    def _drop_leftovers(self) -> None:
        found = self._connection.execute(
            "SELECT datname FROM pg_database WHERE starts_with(datname, %s)", (self._family,)
        ).fetchall()
        runs: dict[str, list[str]] = {}
        for (name,) in found:
            runs.setdefault(name.removeprefix(self._family)[:8], []).append(name)
        for run, names in runs.items():
            lock = (_RUN_LOCKS, _key(run))
            if self._value("SELECT pg_try_advisory_lock(%s, %s)", *lock):
                for name in names:
                    self.drop(name)
                self._execute("SELECT pg_advisory_unlock(%s, %s)", *lock)

    def _execute(self, statement: LiteralString, *values: object) -> None:
        self._connection.execute(statement, values)

    def _execute_ddl(self, statement: LiteralString, *names: sql.Identifier) -> None:
        """Execute it, also if a session that ends keeps the database for longer than 5 s.

        PostgreSQL itself waits for 5 s, for instance for a worker of autovacuum in a template.
        """
        give_up_at = time.monotonic() + IN_USE_SECONDS
        while True:
            try:
                self._connection.execute(sql.SQL(statement).format(*names))
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > give_up_at:
                    raise
            else:
                return

    def _value(self, statement: LiteralString, *values: object) -> object:
        row = self._connection.execute(statement, values).fetchone()
        assert row is not None
        return row[0]


def _is_free(connection: psycopg.Connection) -> bool:
    """Whether it waits for a statement and the server answers."""
    if connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
        return False
    try:
        connection.execute("SELECT")
    except psycopg.OperationalError:
        return False
    return True


def _key(run: str) -> int:
    return int(run, 16) - 2**31

"""PostgreSQL servers of a test's own: stopped in every way, copied, promoted."""

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cronledger.embedded.binaries import as_ordinary_user, find_binaries
from cronledger.embedded.postmaster import Postmaster, server_pid
from tests.database import chosen_binaries
from tests.processes import alive, children
from tests.waiting import until

How = Literal["fast", "immediate", "kill"]
PATIENCE = 60.0


class OwnServer:
    """The server of `directory`. `binaries`: a bin directory; None: CRONLEDGER_TEST_BINARIES, else
    the first found."""

    def __init__(
        self,
        directory: Path,
        binaries: Path | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._base = directory
        self.programs = find_binaries(binaries or chosen_binaries())
        self._postmaster = Postmaster(directory, self.programs, {"jit": "off", **settings})

    @property
    def data(self) -> Path:
        return self._postmaster.data

    def start(self) -> str:
        """The DSN of a superuser on database `cronledger`; the server answers."""
        return self._postmaster.ensure()

    def stop(self, how: How = "fast") -> None:
        """No process of the server is left; `kill`: all of them by SIGKILL at once."""
        pid = server_pid(self.data)
        if pid is None:
            return
        if how == "fast":
            self._postmaster.stop()
            return
        number = signal.SIGQUIT if how == "immediate" else signal.SIGKILL
        processes = [pid, *(children(pid) if how == "kill" else ())]
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, number)
        until("the server has ended", lambda: not any(map(alive, processes)))

    def follow(self, primary: "OwnServer") -> None:
        """It is a streaming standby of `primary`: a fresh copy that answers."""
        shutil.rmtree(self.data, ignore_errors=True)
        source = f"host={primary.data} port=5432 user=postgres"
        program = str(self.programs.directory / "pg_basebackup")
        options = ["-D", self.data.name, "-R", "-c", "fast", "-X", "stream", "-d", source]
        done = subprocess.run(
            [*as_ordinary_user(self.programs.directory / "postgres"), program, *options],
            cwd=self._base, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.write("synchronous_standby_names = ''\n")  # copied: it has no standby of its own
        self.start()

    def sql(self, statement: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        """Rows, asked by the superuser on a connection of its own."""
        with psycopg.connect(
            self.start(), autocommit=True, application_name="tests",
            options="-csynchronous_commit=on",  # no crash takes back what ended a fault
        ) as c:  # fmt: skip
            cursor = c.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []


class Pair:
    """A primary and its synchronous standby: what it acknowledged is on both."""

    def __init__(
        self,
        directory: Path,
        binaries: Path | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.primary = OwnServer(directory / "a", binaries, settings)
        self.standby = OwnServer(directory / "b", binaries, settings)
        self._moving = threading.RLock()

    @staticmethod
    def missing(binaries: Path | None = None) -> str | None:
        """Why there can be no standby with these programs; None: there can."""
        programs = find_binaries(binaries or chosen_binaries()).directory
        if not (programs / "pg_basebackup").exists():
            return f"there is no pg_basebackup in {programs}"
        if not any(programs.parent.glob("lib/**/libpqwalreceiver.*")):
            return f"the server of {programs} has no libpqwalreceiver"
        return None

    def start(self) -> str:
        """The multi-host DSN of whichever is the primary."""
        dsn = self.primary.start()
        self.rebuild()
        hosts = ",".join(sorted(str(x.data) for x in (self.primary, self.standby)))
        return make_conninfo(dsn, host=hosts, target_session_attrs="read-write")

    def rebuild(self) -> None:
        """The standby is a fresh copy, and no commit is acknowledged without it."""
        with self._moving:
            self.standby.stop("kill")
            self.standby.follow(self.primary)
        synchronous: LiteralString = (
            "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = %s"
        )
        until("it streams", lambda: self.primary.sql(synchronous, "async"))
        self.primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.sql("SELECT pg_reload_conf()")
        until("it is synchronous", lambda: self.primary.sql(synchronous, "sync"))

    def fail_over(self) -> None:
        """The primary is killed, its standby promoted; there is no standby until `rebuild`."""
        with self._moving:
            self.primary.stop("kill")
            self.primary, self.standby = self.standby, self.primary
            until("it is promoted", self._promoted)

    def _promoted(self) -> bool:
        """Promote the standby. Return False if the replay of the last WAL cancelled the query."""
        try:
            ((done,),) = self.primary.sql("SELECT NOT pg_is_in_recovery() OR pg_promote(true)")
        except psycopg.errors.SerializationFailure:
            return False
        return bool(done)

    def sql(self, statement: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        """Rows, asked of the primary. In a failover it waits: asking starts a server that is down,
        which must not be the old primary."""
        with self._moving:
            return self.primary.sql(statement, *values)

    def close(self) -> None:
        for server in (self.standby, self.primary):
            server.stop("immediate")


@contextmanager
def stopping(server: OwnServer | Pair) -> Iterator[str]:
    """The DSN of a server that has ended afterwards."""
    try:
        yield server.start()
    finally:
        server.close() if isinstance(server, Pair) else server.stop("immediate")


def listen(server: OwnServer, dsn: str, address: str, clients: str) -> None:
    """Let clients, as pg_hba.conf names them, reach the server at an address. It starts anew."""
    with psycopg.connect(dsn, autocommit=True) as c:
        c.execute(sql.SQL("ALTER SYSTEM SET listen_addresses = {}").format(address))
    rules = server.data / "pg_hba.conf"
    rules.write_text(f"host all all {clients} trust\n{rules.read_text()}")
    server.stop()
    server.start()


def single(dsn: str, data: Path) -> str:
    """`dsn` with the one host of the server of `data`."""
    parameters = {k: v for k, v in conninfo_to_dict(dsn).items() if k != "target_session_attrs"}
    return make_conninfo("", **{**parameters, "host": str(data)})


def fill_disk(c: psycopg.Connection) -> None:
    """Every write of executions, schedules and runners fails as on a full disk."""
    c.execute("CREATE FUNCTION public.disk_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
              " RAISE EXCEPTION 'could not extend file: No space left on device'"
              " USING ERRCODE = 'disk_full'; END $$")  # fmt: skip
    for table in ("executions", "schedules", "runners"):
        c.execute(
            sql.SQL(
                "CREATE TRIGGER disk_full BEFORE INSERT OR UPDATE ON cronledger.{}"
                " EXECUTE FUNCTION public.disk_full()"
            ).format(sql.Identifier(table))
        )


def free_disk(c: psycopg.Connection) -> None:
    """They succeed again. A deadlock with a replica ends one attempt, not the fault."""

    def drop() -> bool:
        try:
            c.execute("DROP FUNCTION IF EXISTS public.disk_full() CASCADE")
        except psycopg.errors.DeadlockDetected:
            return False
        return True

    until("no trigger refuses the writes", drop)

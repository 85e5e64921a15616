"""The PostgreSQL server of one data directory: initialise, launch, find and stop it.

The caller holds the lock under which the server of a directory starts and stops. Two processes must
not do this at the same time.
"""

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psycopg

from cronledger.embedded.binaries import REMEDY, Binaries, EmbeddedError, as_ordinary_user

DATABASE = "cronledger"
SUPERUSER = "postgres"
PORT = 5432  # part of the name of the socket; the server does not listen on TCP

_SOCKET_PATH_BYTES = 103  # of sun_path without its NUL on macOS; Linux allows 107
_LOG_BYTES = 10 * 1024 * 1024

_INITDB_SECONDS = 120.0
_LEFTOVER_SECONDS = 10.0
_START_SECONDS = 60.0
_STALE_SECONDS = 15.0
_STOP_SECONDS = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0))  # fast, then immediate
_POLL_SECONDS = 0.02

# Durability is PostgreSQL's default. The log contains no routine events.
_DEFAULTS: Mapping[str, str] = {
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_autovacuum_min_duration": "-1",
}
_FIXED: Mapping[str, str] = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
}


def server_pid(data: Path) -> int | None:
    """Return the pid of the live server of the data directory, or None."""
    lines = _pid_lines(data)
    if not lines or not lines[0].lstrip("-").isdigit():
        return None
    pid = abs(int(lines[0]))
    return pid if _serves(pid, data) else None


def _pid_lines(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def running_dsn(data: Path) -> str | None:
    """Return the DSN of the database of the live server of the data directory, or None."""
    lines = _pid_lines(data)
    if len(lines) < 5 or not lines[4] or server_pid(data) is None:
        return None
    return _dsn(lines[4], DATABASE)


def _dsn(directory: str, database: str) -> str:
    return f"postgresql://{SUPERUSER}@/{database}?host={quote(directory, safe='')}&port={PORT}"


def _serves(pid: int, data: Path) -> bool:
    """Return whether process `pid` is a live PostgreSQL of `data`.

    It may be a zombie or, after a reboot, another process with the same number.
    """
    if not sys.platform.startswith("linux"):
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True
    process = Path(f"/proc/{pid}")
    try:
        return (process / "cwd").samefile(data)  # PostgreSQL works inside its data directory
    except PermissionError:
        return process.stat().st_uid == os.geteuid()
    except (FileNotFoundError, ProcessLookupError):
        return False


def stop_server(data: Path) -> None:
    """Stop the server of the data directory: fast, then immediate. Wait for its end."""
    pid = server_pid(data)
    if pid is None:
        return
    for number, seconds in _STOP_SECONDS:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not _serves(pid, data):
                # Process 1 of a container inherits it, and must leave no zombie.
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                return
            time.sleep(_POLL_SECONDS)
    raise EmbeddedError(
        f"the embedded PostgreSQL (pid {pid}) does not stop: see {data / 'server.log'}, and kill it"
    )


def private_directory(path: Path) -> Path:
    """Return `path`, a directory that only this OS user can enter; create it if it is missing.

    Raises EmbeddedError if `path` is something else, such as a link or a directory of another user.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise EmbeddedError(f"{path} is not a directory of this user with mode 0700: remove it")
    return path


def _remove(leftover: Path) -> None:
    """Remove the directory of an initdb whose process was killed.

    Its child may write there for a moment longer, until it finds that its files are missing.
    """
    give_up_at = time.monotonic() + _LEFTOVER_SECONDS
    while leftover.exists() and time.monotonic() < give_up_at:
        shutil.rmtree(leftover, ignore_errors=True)
        time.sleep(0.02)


def _socket_directory(data: Path) -> Path:
    """Return the data directory, or a short private one if its path is too long for a socket."""
    here = os.fsencode(data / f".s.PGSQL.{PORT}")
    if len(here) <= _SOCKET_PATH_BYTES and b"," not in here:  # a comma lists hosts in a DSN
        return data
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    root = Path(runtime if runtime and len(runtime) < 40 and Path(runtime).is_dir() else "/tmp")
    return private_directory(root / f"cronledger-{os.geteuid()}-{digest}")


class Postmaster:
    """The server of `<base>/postgres-<major>`; `settings` are PostgreSQL's, used at a launch.

    Raises EmbeddedError where root cannot run PostgreSQL.
    """

    def __init__(self, base: Path, binaries: Binaries, settings: Mapping[str, str]) -> None:
        self.data = base / f"postgres-{binaries.major}"
        self._base = base
        self._binaries = binaries
        self._settings = {**_DEFAULTS, **settings, **_FIXED}
        self._prefix = as_ordinary_user(binaries.directory / "postgres")

    @property
    def log(self) -> Path:
        """The log of the server. A launch moves it to `server.log.1` if it exceeds 10 MB."""
        return self.data / "server.log"

    def ensure(self) -> str:
        """Return the DSN of the database `cronledger` of a running server. Start it if necessary.

        An earlier server may be starting, recovering, stopping or killed.
        """
        if not self.data.exists():
            self._initialise()
        self._check_data()
        deadline = time.monotonic() + _START_SECONDS
        while True:
            dsn = self._try_connect()
            if isinstance(dsn, str):
                return dsn
            if time.monotonic() > deadline:
                raise EmbeddedError(
                    f"the embedded PostgreSQL in {self.data} does not respond ({dsn}): "
                    f"see {self.log}, {REMEDY}\n{self._log_tail()}"
                )
            if server_pid(self.data) is None:
                self._launch()
            else:
                time.sleep(_POLL_SECONDS)  # it is starting, recovering or stopping

    def stop(self) -> None:
        """Stop the server of the directory, as `stop_server` does."""
        stop_server(self.data)

    def _check_data(self) -> None:
        owner = self.data.stat().st_uid
        if owner != os.geteuid():
            raise EmbeddedError(
                f"{self.data} belongs to uid {owner}, but this process runs as uid {os.geteuid()}: "
                f"run as that user, {REMEDY}"
            )
        version = (self.data / "PG_VERSION").read_text().strip()
        if version != str(self._binaries.major):
            raise EmbeddedError(
                f"{self.data} contains data of PostgreSQL {version}, but the server binaries in "
                f"{self._binaries.directory} are {self._binaries.version}: use binaries of "
                f"version {version}, or move the directory away, {REMEDY}"
            )

    def _initialise(self) -> None:
        """Create the data directory, which gets its final name when it is complete."""
        for leftover in self._base.glob(f"{self.data.name}.new-*"):
            _remove(leftover)
        fresh = Path(tempfile.mkdtemp(prefix=f"{self.data.name}.new-", dir=self._base))
        options = ["--username", SUPERUSER, "--encoding=UTF8", "--locale=C"]
        options += ["--auth-local=trust", "--auth-host=reject"]
        if self._binaries.major >= 17:
            options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if self._settings.get("fsync") == "off":
            options += ["--no-sync"]
        try:
            done = self._run(_INITDB_SECONDS, "initdb", "-D", fresh.name, *options)
            if done.returncode != 0:
                raise EmbeddedError(
                    f"initdb of {self._binaries.directory} failed in {self._base}: "
                    f"{done.stderr.strip()}"
                )
            with (fresh / "postgresql.conf").open("a") as conf:
                conf.write("\ninclude_if_exists 'cronledger.conf'  # rewritten at each start\n")
                conf.flush()
                os.fsync(conf.fileno())
            fresh.rename(self.data)
            self._sync_base()
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _sync_base(self) -> None:
        fd = os.open(self._base, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _try_connect(self) -> str | psycopg.OperationalError | None:
        """Return the DSN; create the database if it is missing. Otherwise return the error."""
        lines = _pid_lines(self.data)
        if len(lines) < 5 or not lines[4]:
            return None
        # The running server decides where its socket is, because the environment of the process
        # that launched it may differ from this one.
        maintenance, ours = (_dsn(lines[4], database) for database in ("postgres", DATABASE))
        try:
            with psycopg.connect(maintenance, autocommit=True, connect_timeout=5) as conn:
                known = "SELECT FROM pg_database WHERE datname = %s"
                if conn.execute(known, (DATABASE,)).fetchone() is None:
                    conn.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.OperationalError as exc:
            return exc
        return ours

    def _launch(self) -> None:
        """Launch a server, which outlives this process: pg_ctl gives it a session of its own."""
        pid_file = self.data / "postmaster.pid"
        socket_lock = _socket_directory(self.data) / f".s.PGSQL.{PORT}.lock"
        stale = pid_file.exists()
        deadline = time.monotonic() + _STALE_SECONDS
        self._write_settings()
        while True:
            # The caller holds the lock and the directory has no live server, so these files are
            # left by a killed one. PostgreSQL would refuse to start while that pid is a zombie or
            # belongs to another process. Orphaned backends of the killed server still prevent a
            # start by their shared memory, whose key does not depend on the files. So retry.
            for file in (pid_file, socket_lock):
                file.unlink(missing_ok=True)
            where = ["-D", self.data.name, "-l", str(self.log.relative_to(self._base))]
            wait = ["-w", "-t", str(int(_START_SECONDS))]
            done = self._run(_START_SECONDS + 10, "pg_ctl", "start", "-s", *where, *wait)
            if done.returncode == 0 or server_pid(self.data) is not None:
                return
            if not stale or time.monotonic() > deadline:
                raise EmbeddedError(
                    f"the embedded PostgreSQL in {self.data} did not start "
                    f"({done.stderr.strip()}): see {self.log}, {REMEDY}\n{self._log_tail()}"
                )
            time.sleep(_POLL_SECONDS * 5)

    def _write_settings(self) -> None:
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES:
            self.log.replace(self.log.with_name("server.log.1"))
        sockets = str(_socket_directory(self.data)).replace('"', '""')
        values = {**self._settings, "unix_socket_directories": f'"{sockets}"'}
        lines = []
        for name, value in values.items():
            quoted = value.replace("\\", "\\\\").replace("'", "''")
            lines.append(f"{name} = '{quoted}'\n")
        (self.data / "cronledger.conf").write_text("".join(lines))

    def _log_tail(self) -> str:
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 2000))
                return log.read().decode(errors="replace").strip()
        except FileNotFoundError:
            return ""

    def _run(
        self, seconds: float, program: str, *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the base directory, in a session without the terminal and its Ctrl-C.

        The paths are relative to that directory, because pg_ctl passes them to a shell.
        """
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        try:
            return subprocess.run(
                [*self._prefix, str(self._binaries.directory / program), *arguments],
                cwd=self._base,
                env={**environment, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                start_new_session=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as exc:
            raise EmbeddedError(
                f"{program} did not end within {seconds:.0f} s in {self._base}: {exc.stderr!r}"
            ) from exc

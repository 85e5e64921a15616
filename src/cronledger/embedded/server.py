"""An embedded PostgreSQL: server binaries from a pip package, and data that is kept between runs.

Several processes share one server. Each of them holds a shared flock on `postgres-<major>.users`.
The kernel releases the lock with the process, so that kill -9 leaves no wrong count. Starts and
stops hold an exclusive flock on `postgres.lock`: ten processes that start at once get one server,
and the last one that closes stops it. If all of them are killed, the server continues. The next
start uses it, and the last close stops it.

The server listens only on a Unix socket, in a directory that only its OS user can enter. That
directory is the authentication. All functions block, so asyncio code calls them in a thread.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Self

from cronledger.embedded.binaries import (
    REMEDY,
    Binaries,
    EmbeddedError,
    all_binaries,
    find_binaries,
)
from cronledger.embedded.postmaster import Postmaster, running_dsn, stop_server
from cronledger.extras import require_library

__all__ = ["Binaries", "Embedded", "EmbeddedError", "find_binaries"]


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    # Without a time limit, because each step under this lock has one.
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def remove(directory: Path) -> None:
    """Stop the server of `directory`, although others may use it, and remove the directory.

    Raises EmbeddedError if the server does not stop.
    """
    with suppress(FileNotFoundError), _exclusive(directory / "postgres.lock"):
        for pid_file in directory.glob("postgres-*/postmaster.pid"):
            stop_server(pid_file.parent)
    shutil.rmtree(directory, ignore_errors=True)


class Embedded:
    """The use of the server of `directory`. A context manager around `start` and `close`.

    `directory` (default: the user's data directory) contains `postgres-<major>` and the locks.
    `binaries` is a directory of server programs, see `find_binaries`. `settings` are those of
    PostgreSQL; they apply if this process launches the server. Not thread-safe.
    """

    def __init__(
        self,
        directory: Path | None = None,
        binaries: Path | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._base = (directory or _user_directory()).absolute()
        self._binaries = binaries
        self._settings = dict(settings)
        self._postmaster: Postmaster | None = None
        self._users: int | None = None
        self._owner = 0
        self._dsn: str | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> str:
        """Return the DSN of the database `cronledger` of a running server. Start it if necessary.

        Raises EmbeddedError. In that case the server is stopped, unless another process uses it.
        """
        if self._dsn is not None:
            return self._dsn
        try:
            self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._postmaster = Postmaster(self._base, self._choose_binaries(), self._settings)
            with self._mutex():
                users = f"{self._postmaster.data.name}.users"
                self._users = os.open(self._base / users, os.O_RDWR | os.O_CREAT, 0o600)
                self._owner = os.getpid()
                # Does not wait, because the exclusive mode is only taken under the mutex.
                fcntl.flock(self._users, fcntl.LOCK_SH)
                self._dsn = self._postmaster.ensure()
        except OSError as exc:
            self.close()
            raise EmbeddedError(
                f"the directory {self._base} cannot be used for the embedded database ({exc}): "
                f"allow this user to write there, {REMEDY}"
            ) from exc
        except BaseException:
            self.close()
            raise
        return self._dsn

    def running(self) -> str:
        """Return the DSN of the database of a running server. Starts nothing, and does not keep it.

        Raises EmbeddedError if none is running.
        """
        for pid_file in sorted(self._base.glob("postgres-*/postmaster.pid")):
            if (dsn := running_dsn(pid_file.parent)) is not None:
                return dsn
        raise EmbeddedError(f"no embedded PostgreSQL is running in {self._base}: start a replica")

    def close(self) -> None:
        """Stop using the server. If no other process uses it, stop it and wait for its end."""
        users, self._users, self._dsn = self._users, None, None
        if users is None or self._postmaster is None:
            return
        try:
            if self._owner == os.getpid():  # a fork shares the lock of its parent
                with self._mutex(), suppress(BlockingIOError):
                    # The upgrade may release the shared lock and then fail. That is harmless: other
                    # processes use the server, and a new one would need the mutex.
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._postmaster.stop()
        finally:
            os.close(users)

    def _mutex(self) -> AbstractContextManager[None]:
        return _exclusive(self._base / "postgres.lock")

    def _choose_binaries(self) -> Binaries:
        """Return the binaries that fit the existing data. Without data, return the first ones."""
        kept = {path.parent.name for path in self._base.glob("postgres-*/PG_VERSION")}
        kept = {name for name in kept if re.fullmatch(r"postgres-\d+", name)}
        found: list[Binaries] = []
        for binaries in all_binaries(self._binaries):
            if not kept or f"postgres-{binaries.major}" in kept:
                return binaries
            found.append(binaries)
        # A directory may be on the path and among the usual places.
        versions = ", ".join(
            dict.fromkeys(f"PostgreSQL {b.version} in {b.directory}" for b in found)
        )
        raise EmbeddedError(
            f"{self._base} contains data of another major version ({', '.join(sorted(kept))}) "
            f"than the server binaries ({versions}): install binaries of that version "
            "(the newest ones come with cronledger[embedded]), "
            f"or move the old directory away to begin with an empty database, {REMEDY}"
        )


def _user_directory() -> Path:
    require_library("platformdirs", "embedded", "embedded_dir")
    import platformdirs  # noqa: PLC0415 - of an extra

    return Path(platformdirs.user_data_dir("cronledger"))

"""An embedded PostgreSQL: server binaries from a pip package, data kept between runs.

Several processes share one server. Whoever uses it holds a shared flock on
`postgres-<major>.users`; the kernel drops that lock with the process, so a kill -9 leaves no
count behind. Starting and stopping happen under an exclusive flock on `postgres.lock`: ten
processes that start at once get one server, and the last one that closes stops it. A server
whose users were all killed runs on; the next start adopts it, and its last close stops it.

The server listens on a Unix socket alone, inside a directory that only its OS user can enter;
that directory is the authentication. Everything here blocks: from asyncio, call it in a thread.
"""

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import platformdirs

from cronledger.embedded.binaries import (
    REMEDY,
    Binaries,
    EmbeddedError,
    all_binaries,
    find_binaries,
)
from cronledger.embedded.postmaster import Postmaster

__all__ = ["Binaries", "Embedded", "EmbeddedError", "find_binaries"]


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    # Waits without a limit of its own: every step a holder takes under this lock has one.
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


class Embedded:
    """One user's share in the server of `directory`; a context manager around start and close.

    `directory` (default: the user's data directory) holds `postgres-<major>` and the locks;
    `binaries` is a directory of server programs, see `find_binaries`. `settings` are
    PostgreSQL's; those of whoever launches the server hold while it runs. Not thread-safe.
    """

    def __init__(
        self,
        directory: Path | None = None,
        binaries: Path | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._base = (directory or Path(platformdirs.user_data_dir("cronledger"))).absolute()
        self._binaries = binaries
        self._settings = dict(settings)
        self._postmaster: Postmaster | None = None
        self._users: int | None = None
        self._owner = 0
        self._dsn: str | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> str:
        """The DSN of database `cronledger` on a server that answers and that we count as using.

        Raises EmbeddedError; then we use nothing, and a server that nobody else uses is stopped.
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
                # Does not wait: the exclusive mode is taken, and given up, under the mutex only.
                fcntl.flock(self._users, fcntl.LOCK_SH)
                self._dsn = self._postmaster.ensure()
        except OSError as exc:
            self.close()
            raise EmbeddedError(
                f"the embedded database's directory {self._base} cannot be used ({exc}): "
                f"give this user the right to write there, {REMEDY}"
            ) from exc
        except BaseException:
            self.close()
            raise
        return self._dsn

    def close(self) -> None:
        """Give up our use; if nobody else uses the server, it has ended when this returns."""
        users, self._users, self._dsn = self._users, None, None
        if users is None or self._postmaster is None:
            return
        try:
            if self._owner == os.getpid():  # a forked copy shares its parent's lock: not its own
                with self._mutex(), suppress(BlockingIOError):
                    # The upgrade may drop our shared lock and then fail: others use the server,
                    # we are leaving, and whoever could come between needs the mutex we hold.
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._postmaster.stop()
        finally:
            os.close(users)

    def _mutex(self) -> AbstractContextManager[None]:
        return _exclusive(self._base / "postgres.lock")

    def _choose_binaries(self) -> Binaries:
        """Those that fit the data kept here; without any data, the first found."""
        kept = {path.parent.name for path in self._base.glob("postgres-*/PG_VERSION")}
        kept = {name for name in kept if re.fullmatch(r"postgres-\d+", name)}
        found: list[Binaries] = []
        for binaries in all_binaries(self._binaries):
            if not kept or f"postgres-{binaries.major}" in kept:
                return binaries
            found.append(binaries)
        versions = ", ".join(f"PostgreSQL {b.version} in {b.directory}" for b in found)
        raise EmbeddedError(
            f"{self._base} keeps the data of another major version ({', '.join(sorted(kept))}) "
            f"than the server binaries found ({versions}): install binaries of that version, "
            f"or move the old directory away to begin with an empty database, {REMEDY}"
        )

"""The spool: one file per run, which is deleted once the ledger has the end of the run.

The times are those of the clock of this host. A delivery sends the age of each instant, so that the
difference between the clocks does not count.
"""

import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

MOST_FILES = 10_000
"""A spool takes no further run when it has this number of runs that are not refused."""
SUFFIX, REFUSED, TEMPORARY = ".json", ".refused", ".tmp"
_LEFT_SECONDS = 3_600
"""A temporary file that is older was left by a crash."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a command: what its reports state.

    `ledger`: the name of the ledger that gets them; empty: that of CRONLEDGER_DATABASE_URL.
    """

    job: str
    scope_kind: str
    scope_id: str
    key: str
    host: str
    started: float
    pid: int
    boot: str
    ended: float | None = None
    exit_status: int | None = None
    ledger: str = ""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises OSError, or ValueError if it is not a run."""
        try:
            return cls(**json.loads(path.read_text("utf-8")))
        except TypeError as error:
            raise ValueError(str(error)) from error

    @property
    def is_lost(self) -> bool:
        """Return whether nobody will write its end: its wrapper is gone."""
        if self.ended is not None:
            return False
        if self.boot != boot_id():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


def boot_id() -> str:
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""


def default_directory() -> Path:
    """Return the directory of this user."""
    if os.geteuid() == 0:
        return Path("/var/spool/cronledger")
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return state / "cronledger" / "spool"


def wall_clock() -> float:
    """Return the time of this host, which is compared with itself only, also after a restart."""
    return time.time()  # noqa: TID251


@dataclass(frozen=True, slots=True)
class Spool:
    """A directory of runs. Its methods raise OSError."""

    directory: Path

    def path(self, run: Run) -> Path:
        return self.directory / f"{int(run.started * 1000):015d}-{run.key}{SUFFIX}"

    def write(self, run: Run) -> None:
        """Write a run durably.

        Also raises OSError if the spool is full and does not have the run yet.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if run.ended is None and len(list(self.directory.glob(f"*{SUFFIX}"))) >= MOST_FILES:
            raise OSError(f"it has {MOST_FILES} runs; deliver or delete them")
        self.replace(self.path(run), asdict(run))

    def replace(self, path: Path, content: object) -> None:
        """Write a file of the spool durably. A crash leaves the earlier file or this one."""
        temporary = path.with_suffix(f".{uuid.uuid4().hex}{TEMPORARY}")
        with temporary.open("w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def remove(self, run: Run) -> None:
        self.path(run).unlink(missing_ok=True)

    def refuse(self, run: Run) -> None:
        """Set a run aside that the ledger will never accept."""
        path = self.path(run)
        with suppress(FileNotFoundError):
            path.rename(path.with_suffix(REFUSED))

    def restore(self) -> None:
        """Take the runs back that were set aside."""
        for path in self.directory.glob(f"*{REFUSED}"):
            with suppress(FileNotFoundError):
                path.rename(path.with_suffix(SUFFIX))

    def runs(self) -> Iterator[Run]:
        """Yield the runs, the oldest first. Files that cannot be read are left alone."""
        try:
            paths = sorted(self.directory.glob(f"*{SUFFIX}"))
        except FileNotFoundError:
            return
        for path in paths:
            with suppress(OSError, ValueError):
                yield Run.read(path)

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Deliver alone, and remove what crashes left. Yield False if another process delivers."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.directory / ".lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                os.utime(descriptor)
                self._tidy(os.fstat(descriptor).st_mtime)
                yield True
        finally:
            os.close(descriptor)

    def _tidy(self, now: float) -> None:
        """Remove what crashes left. `now`: by the clock of the file system, as the files' ages."""
        for path in self.directory.glob(f"*{TEMPORARY}"):
            with suppress(OSError):
                if now - path.stat().st_mtime > _LEFT_SECONDS:
                    path.unlink()

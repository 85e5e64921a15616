"""Control groups of commands, where the replica may make them (cgroup v2, Linux 5.14 or later).

A group is killed by one write, whoever its processes belong to and however fast they fork. It
also stays when replica, supervisor and guardian are gone, so the next supervisor can kill it.

Below the group of the replica each supervisor has a directory, which it holds locked, and in that
one for each command. Nobody's resources are limited by them.
"""

import fcntl
import os
from contextlib import suppress

PREFIX = "cronledger-"
KILL = "cgroup.kill"
PROCESSES = "cgroup.procs"


class Groups:
    """The directory of one supervisor. Without the right to make one, `new` returns None."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._count = 0
        home = _home()
        if home is not None:
            _sweep(home)
            path = f"{home}/{PREFIX}{os.getpid()}"
            with suppress(OSError):
                while not self._made(path):
                    pass
                self._path = path

    def _made(self, path: str) -> bool:
        """Make the directory and lock it; return False if it was swept before it was locked.

        Raises OSError where that is not permitted, or the kernel cannot kill groups.
        """
        os.mkdir(path)  # noqa: PTH102
        self._lock = os.open(path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            os.stat(f"{path}/{KILL}")  # noqa: PTH116
        except OSError:
            os.close(self._lock)
            if not os.path.exists(path):  # noqa: PTH110
                return False
            remove(path)
            raise
        return True

    def new(self) -> str | None:
        """Return the directory of a new group, None if there can be none."""
        if self._path is None:
            return None
        self._count += 1
        path = f"{self._path}/{self._count}"
        try:
            os.mkdir(path)  # noqa: PTH102
        except OSError:
            return None
        return path

    def close(self) -> None:
        """Remove the directory, if nothing is left in it."""
        if self._path is not None:
            remove(self._path)


def enter(group: str) -> None:
    """Move this process into the group; it stays where it is if that is refused."""
    with suppress(OSError):
        _write(f"{group}/{PROCESSES}", b"0")


def kill(group: str) -> None:
    """Send SIGKILL to all processes of the group and of the groups below it."""
    with suppress(OSError):
        _write(f"{group}/{KILL}", b"1")


def remove(group: str) -> None:
    """Remove an empty group; one with processes in it stays."""
    with suppress(OSError):
        os.rmdir(group)  # noqa: PTH106


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def _home() -> str | None:
    """Return the directory of this process's own group, if groups may be made in it.

    systemd owns the groups below its units unless they are delegated, even where root could write.
    """
    try:
        path, directory = _own()
    except (OSError, StopIteration):
        return None
    allowed = os.access(directory, os.W_OK) and os.access(f"{directory}/{PROCESSES}", os.W_OK)
    if not allowed:
        return None
    return directory if path == "/" or os.geteuid() != 0 or _delegated(directory) else None


def _own() -> tuple[str, str]:
    """Return the path of this process's group and its directory. Raises StopIteration: no v2."""
    with open("/proc/self/cgroup") as file:  # noqa: PTH123
        path = next(line[3:].rstrip("\n") for line in file if line.startswith("0::"))
    with open("/proc/self/mountinfo") as file:  # noqa: PTH123
        mounts = [line.split() for line in file if " - cgroup2 " in line]
    below = (
        (fields[4], path.removeprefix(fields[3].rstrip("/")))
        for fields in mounts
        if path == fields[3] or path.startswith(f"{fields[3].rstrip('/')}/")
    )
    mount, rest = next(below)
    return path, f"{mount}{rest}".rstrip("/")


def _delegated(directory: str) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            if os.getxattr(directory, name) == b"1":
                return True
    return False


def _sweep(home: str) -> None:
    """Kill what supervisors left that are gone: nobody holds the lock of their directories."""
    with suppress(OSError):
        for name in os.listdir(home):  # noqa: PTH208
            if name.startswith(PREFIX):
                _sweep_one(f"{home}/{name}")


def _sweep_one(path: str) -> None:
    with suppress(OSError):
        lock = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            kill(path)
            for name in os.listdir(path):  # noqa: PTH208
                if name.isdigit():
                    remove(f"{path}/{name}")
            remove(path)
        finally:
            os.close(lock)

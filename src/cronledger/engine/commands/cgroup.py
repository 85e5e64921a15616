"""Control groups of commands, if the replica may create them (cgroup v2, Linux 5.14 or later).

One write kills a whole group, whatever users its processes run as and however fast they fork. A
group outlives replica, supervisor and guardian, so that the next supervisor can kill it.

Each supervisor has a directory in the group of the replica, and holds a lock on it. It contains a
directory for each command. The groups limit no resources.
"""

import fcntl
import os
from contextlib import suppress

PREFIX = "cronledger-"
KILL = "cgroup.kill"
PROCESSES = "cgroup.procs"


class Groups:
    """The directory of one supervisor. `new` returns None if it could not be created."""

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
        """Create and lock the directory. Return False if it was swept before it was locked.

        Raises OSError if that is not permitted, or if the kernel cannot kill groups.
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
        """Return the directory of a new group, or None if it cannot be created."""
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
        """Remove the directory if it is empty."""
        if self._path is not None:
            remove(self._path)


def enter(group: str) -> None:
    """Move this process into the group, if that is permitted."""
    with suppress(OSError):
        _write(f"{group}/{PROCESSES}", b"0")


def kill(group: str) -> None:
    """Send SIGKILL to all processes of the group and of the groups below it."""
    with suppress(OSError):
        _write(f"{group}/{KILL}", b"1")


def remove(group: str) -> None:
    """Remove the group if it is empty."""
    with suppress(OSError):
        os.rmdir(group)  # noqa: PTH106


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def _home() -> str | None:
    """Return the directory of this process's own group, or None if it must not be used.

    systemd owns the groups below its units unless they are delegated, although root could write.
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
    """Return the path of this process's group and its directory.

    Raises StopIteration if cgroup v2 is not mounted.
    """
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
    """Kill the groups of dead supervisors, whose directories are not locked any more."""
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

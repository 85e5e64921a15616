"""System calls of the supervisor: start one program, and signal everything that it started.

Standard library only, so that the supervisor process stays small. Outside of Linux only the process
group is signalled: there is no signal at the death of the parent, and no adoption of orphans.
"""

import ctypes
import errno
import os
import signal
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from cronledger.engine.commands.cgroup import enter

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
"""Signals for which the supervisor has handlers."""

_refused: set[int] = set()
"""Process groups that could not be signalled, each of which is reported once."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
LINUX = sys.platform == "linux"
_LIBC = ctypes.CDLL(None, use_errno=True)
_LISTED = os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")  # noqa: PTH110


def adopt_orphans() -> None:
    """Make every descendant whose parent dies a child of this process (Linux)."""
    if LINUX and _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def become(
    argv: Sequence[str],
    cwd: str | None,
    environ: Mapping[str, str],
    *,
    stdio: tuple[int, int, int],
    status: int,
    parent: int,
    mask: set[int],
    group: str | None,
) -> NoReturn:
    """Turn this child process into the program, or write "STEP ERRNO" to `status` and exit."""
    step = "setup"
    try:
        os.setsid()
        # A second guard: the direct child dies with its guardian, even of kill -9. It does not
        # cover grandchildren and set-uid programs.
        if LINUX:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the line above
            os._exit(127)
        if group is not None:
            enter(group)
        for target, source in enumerate(stdio):
            os.dup2(source, target)
        for handled in (*HANDLED, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(handled, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        step = "cwd"
        if cwd is not None:
            os.chdir(cwd)
        step = "exec"
        os.execvpe(argv[0], list(argv), environ)
    except BaseException as error:  # noqa: BLE001  this copy of the guardian must end
        number = error.errno if isinstance(error, OSError) else None
        os.write(status, f"{step} {number or errno.EINVAL}".encode())
    finally:
        os._exit(127)


def explain(status: str, argv: Sequence[str], cwd: str | None) -> str:
    """Return the error for the `exec_status` of a child that could not start."""
    step, digits = status.split()
    number, name = int(digits), argv[0]
    reason = os.strerror(number)
    if step == "cwd":
        return f"cannot change to cwd {cwd!r}: {reason}"
    if number == errno.ENOENT and "/" in name:
        return f"command not found: {name!r}, or the interpreter in its first line, does not exist"
    if number == errno.ENOENT:
        return f"command not found: {name!r} is not in a directory of PATH"
    if number == errno.EACCES:
        return f"permission denied: {name!r} is not an executable file"
    return f"cannot run {name!r} ({step}): {reason}"


def signal_descendants(root: int, number: int, but: Container[int] = ()) -> bool:
    """Signal all descendants of the process `root`. Return whether there were any.

    Children in `but` and their descendants get no signal. Whole process groups are signalled,
    because a fork may race with the listing. A child that has no group of its own yet is signalled
    alone.
    """
    found = _descendants(root, but)
    ours = {0, os.getpgrp()}
    groups = {pid: _lookup(os.getpgid, pid) for pid in found}
    for group in set(groups.values()) - ours:
        signal_group(group, number)
    for pid, group in groups.items():
        if group in ours:
            signal_process(pid, number)
    return bool(found)


def name_descendants(root: int) -> list[str]:
    """Return "NAME (PID)" of each living descendant of `root`, in the order of their pids."""
    found: list[str] = []
    for pid in sorted(_descendants(root, ())):
        with suppress(OSError):  # the process ended meanwhile
            with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
                name, _, rest = file.read().partition(b"(")[2].rpartition(b")")
            if rest.split()[0] not in (b"Z", b"X"):
                text = name.decode("utf-8", "replace")
                shown = "".join(char if char.isprintable() else "?" for char in text)
                found.append(f"{shown} ({pid})")
    return found


def group_exists(group: int) -> bool:
    """Return whether the process group has a member, zombies included."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def signal_group(group: int, number: int) -> None:
    """Signal a process group, if it still exists."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        if group not in _refused:
            _refused.add(group)
            sys.stderr.write(
                f"cronledger: not permitted to signal process group {group} of another user\n"
            )


def signal_process(pid: int, number: int) -> None:
    """Signal a process, if it still exists and belongs to this user."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _descendants(root: int, but: Container[int]) -> list[int]:
    """Return the descendants of `root`, zombies included, without children in `but` and theirs."""
    children = _children if _LISTED else _read_parents().get
    found = [pid for pid in children(root) or () if pid not in but]
    for pid in found:  # the loop appends to it
        found += children(pid) or ()
    return found


def _read_parents() -> dict[int, list[int]]:
    """Return the children of each process, for kernels that do not list them."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112, PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:  # the process ended meanwhile
                continue
            children.setdefault(parent, []).append(int(name))
    return children


def _children(pid: int) -> list[int]:
    """Return the children of a process, zombies included."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  pathlib is slow to import
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    except OSError:  # the process ended meanwhile
        pass
    return found


def _lookup(call: Callable[[int], int], pid: int) -> int:
    try:
        return call(pid)
    except OSError:  # the process ended meanwhile
        return 0

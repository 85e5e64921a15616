"""Starting one program and ending all that it started: the system calls under the supervisor.

Standard library only and light: the supervisor process imports this, the guardian, and nothing else
of ours. Linux does all of it; elsewhere the process group stands for all, and neither the parent's
death signal nor the adoption of orphans exists.
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
    """From now on a descendant whose parent dies becomes a child of this process (Linux)."""
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
    """In the child: becomes the program, or writes "STEP ERRNO" to `status` and exits."""
    step = "setup"
    try:
        os.setsid()
        # The second belt: the direct child dies with its guardian, even of kill -9. It covers
        # neither grandchildren nor set-uid programs.
        if LINUX:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
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
    except BaseException as error:  # noqa: BLE001  nothing of this copy of the loop may go on
        number = error.errno if isinstance(error, OSError) else None
        os.write(status, f"{step} {number or errno.EINVAL}".encode())
    finally:
        os._exit(127)


def explain(said: str, argv: Sequence[str], cwd: str | None) -> str:
    """The sentence for what a child that could not start wrote to its `exec_status`."""
    step, digits = said.split()
    number, name = int(digits), argv[0]
    reason = os.strerror(number)
    if step == "cwd":
        return f"cannot change to cwd {cwd!r}: {reason}"
    if number == errno.ENOENT and "/" in name:
        return f"command not found: no file {name!r}, or not the interpreter its first line names"
    if number == errno.ENOENT:
        return f"command not found: {name!r} is in no directory of PATH"
    if number == errno.EACCES:
        return f"permission denied: {name!r} is not a file that may be executed"
    return f"cannot run {name!r} ({step}): {reason}"


def signal_descendants(root: int, number: int, but: Container[int] = ()) -> bool:
    """Signal all descendants of the process `root`; return whether there were any.

    Children in `but` and their descendants are left alone. Signals go to process groups, because a
    fork may race with the listing; a child that has no group of its own yet is signalled alone.
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


def group_exists(group: int) -> bool:
    """Whether the process group has a member, be it only a zombie."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_group(group: int, number: int) -> None:
    """Signals a process group; a group that is gone already is fine."""
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
    """Signal a process; one that is gone already, or of another user, is left."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _descendants(root: int, but: Container[int]) -> list[int]:
    """Descendants, zombies included, but for children in `but` and theirs."""
    children = _children if _LISTED else _read_parents().get
    found = [pid for pid in children(root) or () if pid not in but]
    for pid in found:  # it grows meanwhile
        found += children(pid) or ()
    return found


def _read_parents() -> dict[int, list[int]]:
    """Children by parent, read from all processes: for kernels that do not list children."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112, PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:  # it ended meanwhile
                continue
            children.setdefault(parent, []).append(int(name))
    return children


def _children(pid: int) -> list[int]:
    """Children, zombies included."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  pathlib is slow to import
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    except OSError:  # it ended meanwhile
        pass
    return found


def _lookup(call: Callable[[int], int], pid: int) -> int:
    try:
        return call(pid)
    except OSError:  # it ended meanwhile
        return 0

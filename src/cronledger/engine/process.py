"""Starting one program and ending its whole session: the system calls under the supervisor.

Standard library only and light: the supervisor process imports this and nothing else of ours.
Linux does all of it; elsewhere the process group stands for the session, and neither the parent's
death signal nor the adoption of orphans exists.
"""

import ctypes
import errno
import os
import signal
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NoReturn

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
"""Signals for which the supervisor has handlers."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform == "linux"
_LIBC = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """From now on a descendant whose parent dies becomes a child of this process (Linux)."""
    if _LINUX and _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def spawn(
    argv: Sequence[str], cwd: str | None, environ: Mapping[str, str], null: int
) -> tuple[int, int, int]:
    """Forks a child which becomes `argv` in a session of its own, stdin from `null`.

    Answers (pid, output, exec_status) without waiting for exec(). Both pipes do not block. `output`
    carries stdout and stderr; `exec_status` ends silently at exec(), or says what `explain` reads.
    Raises OSError when there is no process or file descriptor to be had.
    """
    opened: list[int] = []
    try:
        for _ in range(2):
            opened += os.pipe()
        output_r, output_w, status_r, status_w = opened
        os.set_blocking(output_r, False)
        os.set_blocking(status_r, False)
        parent = os.getpid()
        # Blocked across the fork: a SIGTERM that arrives before exec() must end the child, not be
        # swallowed by the handlers it inherited.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        try:
            pid = os.fork()
            if pid == 0:
                stdio = (null, output_w, output_w)
                _become(argv, cwd, environ, stdio=stdio, status=status_w, parent=parent, mask=mask)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    except OSError:
        for fd in opened:
            os.close(fd)
        raise
    os.close(output_w)
    os.close(status_w)
    return pid, output_r, status_r


def _become(
    argv: Sequence[str],
    cwd: str | None,
    environ: Mapping[str, str],
    *,
    stdio: tuple[int, int, int],
    status: int,
    parent: int,
    mask: set[int],
) -> NoReturn:
    """In the child: becomes the program, or writes "STEP ERRNO" to `status` and exits."""
    step = "setup"
    try:
        os.setsid()
        # The second belt: the direct child dies with the supervisor, even of kill -9. It covers
        # neither grandchildren nor set-uid programs.
        if _LINUX:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(127)
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


def signal_session(pid: int, number: int) -> None:
    """Signals every process group in the session of the unreaped child `pid`, its leader."""
    groups = {pid}
    unseen = [pid]
    while unseen:
        for child in _children(unseen.pop()):
            if _lookup(os.getsid, child) == pid:
                groups.add(_lookup(os.getpgid, child))
                unseen.append(child)
    if not group_exists(pid):  # the child has not come as far as setsid()
        os.kill(pid, number)
    for group in groups - {0}:
        signal_group(group, number)


def orphan_groups(known: Container[int]) -> dict[int, set[int]]:
    """Session -> process groups of this process's own children other than `known`.

    After `adopt_orphans` these are what dead children left behind, but not what they in turn have
    forked: it turns up here once they are dead.
    """
    sessions: dict[int, set[int]] = {}
    for pid in _children(os.getpid()):
        if pid in known:
            continue
        session, group = _lookup(os.getsid, pid), _lookup(os.getpgid, pid)
        if session and group:
            sessions.setdefault(session, set()).add(group)
    return sessions


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
        sys.stderr.write(f"cronledger supervisor: may not signal group {group} of another user\n")


def _children(pid: int) -> list[int]:
    """Children, zombies included; none where the kernel does not list them."""
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

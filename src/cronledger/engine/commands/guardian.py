"""The guardian of one command: its parent, which kills everything that the command started.

The supervisor forks one guardian for each command. On Linux the guardian is a subreaper: orphans of
the command become its children, also after setsid() and a double fork. So it knows every descendant
of the command, and no process of another command.

While the supervisor lives, the guardian signals on request only. `control` carries the requests:

- `T`: send SIGTERM to all descendants;
- `K`: send SIGKILL to all descendants, until none is left;
- the end of the pipe: the supervisor is dead, which counts as `K`.

The guardian writes lines to `report`: `pid N` and later `exit STATUS` of the command itself,
`killing` when it has read a `K`, `left NUMBER NAMES` if processes are killed after the command has
exited (on Linux), and `gone` when no process of the command is left. Then it exits.
It keeps the supervisor's stdout open and never writes to it. So the runner, which reads the other
end, reads its end only when all guardians are done.
"""

import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import NoReturn

from cronledger.engine.commands import cgroup
from cronledger.engine.commands.spawn import (
    HANDLED,
    LINUX,
    adopt_orphans,
    become,
    group_exists,
    name_descendants,
    signal_descendants,
    signal_group,
)

LAST = 1.9
"""Seconds for which a guardian continues to kill after the end of its supervisor."""
EAGER = 2.0
"""Seconds for which a guardian polls often. Later survivors can hardly be killed."""
OFTEN = 0.02
SELDOM = 1.0
NAMED = 5
"""The most processes that `left` names."""
NEVER = float("inf")


def spawn(
    argv: Sequence[str],
    cwd: str | None,
    environ: Mapping[str, str],
    null: int,
    group: str | None = None,
) -> tuple[int, int, int, int, int]:
    """Fork a guardian, whose child becomes `argv` in a session of its own, stdin from `null`.

    `group`: the directory of its control group, which the guardian removes at its end.

    Return (guardian, control, report, output, exec_status) without waiting for exec(). `guardian`
    is a pid; the others are ends of pipes that do not block. `control` and `report` are described
    above. `output` carries stdout and stderr. `exec_status` ends silently at exec(), or contains
    the text for `explain`. Raises OSError if processes or file descriptors are exhausted.
    """
    opened: list[int] = []
    try:
        for _ in range(4):
            opened += os.pipe()
        control_r, control_w, report_r, report_w, output_r, output_w, status_r, status_w = opened
        for fd in (control_w, report_r, output_r, status_r):
            os.set_blocking(fd, False)
        # Blocked across the forks: a SIGTERM that arrives before exec() must end the child. The
        # handlers that it inherits would ignore it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        try:
            pid = os.fork()
            if pid == 0:
                stdio = (null, output_w, output_w)
                child = partial(
                    become, argv, cwd, environ, stdio=stdio, status=status_w, mask=mask, group=group
                )
                _guard(
                    partial(_fork, child, status_w, mask),
                    control=control_r,
                    report=report_w,
                    keep=(null, output_w, status_w),
                    null=null,
                    group=group,
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    except OSError:
        for fd in opened:
            os.close(fd)
        raise
    for fd in (control_r, report_w, output_w, status_w):
        os.close(fd)
    return pid, control_w, report_r, output_r, status_r


def _fork(child: Callable[..., NoReturn], status: int, mask: set[int]) -> int:
    """Run `child` in a forked process and return its pid. Its signals are blocked at first."""
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        os.write(status, f"fork {error.errno}".encode())
        raise
    if pid == 0:
        child(parent=parent)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid


def _guard(
    begin: Callable[[], int],
    *,
    control: int,
    report: int,
    keep: tuple[int, ...],
    null: int,
    group: str | None,
) -> NoReturn:
    """Run the guardian of the child process that `begin` starts; it returns the pid.

    For a process that was just forked. `keep`: file descriptors that `begin` needs.
    """
    try:
        os.setsid()
        os.dup2(null, 0)
        wake_r, wake_w = os.pipe()
        os.set_blocking(wake_w, False)
        _close_all_but({control, report, wake_r, wake_w, *keep})
        # As in the supervisor: a signal to everything in its control group does not end it.
        for number in HANDLED:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        adopt_orphans()
        pid = begin()
        for fd in keep:
            os.close(fd)
        _Guardian(pid, control, report, wake_r, group).run()
    except BaseException as error:  # noqa: BLE001  this copy of the supervisor must end
        sys.stderr.write(f"cronledger guardian: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(0)


def _close_all_but(kept: set[int]) -> None:
    """Close all but stdio and `kept`. Otherwise the pipes of other guardians would stay open."""
    try:
        fds: Iterable[int] = map(int, os.listdir("/proc/self/fd" if LINUX else "/dev/fd"))  # noqa: PTH208
    except OSError:
        fds = range(os.sysconf("SC_OPEN_MAX"))
    for fd in fds:
        if fd > 2 and fd not in kept:
            with suppress(OSError):  # the listing itself had one open
                os.close(fd)


class _Guardian:
    def __init__(self, pid: int, control: int, report: int, wake: int, group: str | None) -> None:
        self._group = group
        self._pid = pid
        self._control = control
        self._report = report
        self._wake = wake
        self._reaped = False
        self._killing_since = NEVER
        self._give_up_at = NEVER
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(wake, select.POLLIN)

    def run(self) -> None:
        """Run until no process of the command is left."""
        self._write(f"pid {self._pid}")
        while self._anything_left():
            if self._killing_since != NEVER:
                self._kill()
            # After the kill, because this process may have stood still since the supervisor died.
            if monotonic() >= self._give_up_at:
                break
            for fd, _ in self._poll.poll(self._patience()):
                self._read(fd)
        if self._group is not None:
            cgroup.remove(self._group)
        self._write("gone")

    def _patience(self) -> float | None:
        """Return the milliseconds until the next poll. None: no limit."""
        if self._killing_since == NEVER:
            # Where orphans are not adopted, their end raises no SIGCHLD here.
            return SELDOM * 1000 if self._reaped and not LINUX else None
        eager = monotonic() < self._killing_since + EAGER
        return 1000 * (OFTEN if eager else SELDOM)

    def _read(self, fd: int) -> None:
        data = os.read(fd, 1024)
        if fd == self._wake:
            return
        if not data:  # the supervisor is dead
            self._poll.unregister(fd)
            self._give_up_at = monotonic() + LAST
        if b"K" in data or not data:
            self._write("killing")
            if self._killing_since == NEVER:
                self._killing_since = monotonic()
                self._report_left()
        elif b"T" in data:
            self._signal(signal.SIGTERM)

    def _anything_left(self) -> bool:
        """Reap dead children. Return whether any process of the command is left.

        Zombies of other parents count. On Linux, no children means no descendants, because orphans
        become children of the guardian.
        """
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self._pid:
                    self._reaped = True
                    self._write(f"exit {found[1]}")
        except ChildProcessError:
            return not LINUX and group_exists(self._pid)
        return True

    def _report_left(self) -> None:
        """Report the processes that the command left running, if it has exited."""
        if LINUX and self._reaped and (left := name_descendants(os.getpid())):
            more = [f"and {len(left) - NAMED} more"] if len(left) > NAMED else []
            self._write(f"left {len(left)} {', '.join(left[:NAMED] + more)}")

    def _kill(self) -> None:
        if self._group is not None:
            cgroup.kill(self._group)
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if LINUX:
            signal_descendants(os.getpid(), number)
        else:
            signal_group(self._pid, number)

    def _write(self, line: str) -> None:
        with suppress(BrokenPipeError):  # the supervisor is dead
            os.write(self._report, f"{line}\n".encode())

"""The process that runs commands, so that no command outlives its lease, even if the runner dies.

Run as ``python -m cronledger.engine.commands.supervisor [RUNNER_PID]``. It reads requests on stdin
and writes events on stdout, one JSON object per line; `cronledger.engine.commands.client` is the
other end. It uses the standard library only, has one thread, and never blocks, because a stopped
runner or a program on a hung filesystem must not delay the deadline of another command.

Requests::

    {"op": "start", "key", "argv": [...] | null, "shell": str | null, "cwd": str | null,
     "env": {additions}, "deadline", "grace", "tail_bytes", "shown", "follow_until"}
    {"op": "extend", "deadlines": {key: deadline}}
    {"op": "follow", "key", "until"}    send its output at once until that instant
    {"op": "stop", "key"}     SIGTERM now, SIGKILL after the command's grace
    {"op": "kill", "key"}     SIGKILL now
    {"op": "ping"}            the supervisor responds with the event pong

Events: ``ready`` once; then for each start either ``failed`` (key, error) or ``started`` (key, pid)
followed by ``ended`` (key, returncode, signal, reason, output, missing), once each.
Between these, ``progress`` (key, done, total, text) for the newest progress line of each part of
the output. Progress lines are not part of the output.
In between, if it is ``shown``, ``output`` (key, text, missing) has what it has written since the
last one, and how many bytes before that are lost.

Deadlines are instants of CLOCK_MONOTONIC in seconds. All processes of a host share that clock, so
the supervisor and the `time.monotonic()` of the runner agree. It stops while the host is suspended.

Each command has a parent process of its own, its `guardian`. All descendants of the guardian end
with the command: on Linux everything that the command started, daemons and other sessions included;
elsewhere its process group. If the supervisor may create control groups, each command has one,
which is killed as a whole. Without a group, processes of users whom the supervisor may not signal
(sudo) continue. If the supervisor dies, each guardian kills its command. If a guardian dies, the
supervisor adopts its processes and kills them.
"""

import gc
import json
import os
import selectors
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any

from cronledger.engine.commands import cgroup
from cronledger.engine.commands.guardian import spawn
from cronledger.engine.commands.spawn import (
    HANDLED,
    LINUX,
    adopt_orphans,
    explain,
    group_exists,
    signal_descendants,
    signal_group,
    signal_process,
)
from cronledger.engine.commands.supervised import NEVER, Command

EOF_GRACE = 2.0
"""The longest grace, in seconds, when the runner is gone."""
DRAIN = 0.2
"""Seconds for which the processes that a command left behind may continue to write its output."""
GONE = 2.0
"""Seconds after SIGKILL for which `ended` waits for the last processes of a command."""
DEAF = 0.05
"""Seconds after which a guardian that does not confirm a kill is killed itself."""
POLL = 0.05
CHUNK = 1 << 16


class Supervisor:
    """The commands and the loop that watches them.

    The runner is gone when stdin ends, or when `runner_pid` dies, because a fork of the runner may
    hold copies of both pipes open.
    """

    def __init__(self, runner_pid: int | None) -> None:
        self._commands: dict[str, Command] = {}
        self._guardians: dict[int, Command] = {}
        self._by_pid: dict[int, Command] = {}  # those whose guardian is lost
        self._selector = selectors.DefaultSelector()
        self._requests = b""
        self._events = bytearray()
        self._soonest = NEVER  # the earliest next_at of all commands, or earlier
        self._runner_gone = False
        self._flush_by = NEVER
        self._environ = dict(os.environ)
        self._null = os.open(os.devnull, os.O_RDWR)
        while self._null <= 2:  # children need 0, 1 and 2, but the runner may have closed stderr
            self._null = os.dup(self._null)
        adopt_orphans()
        self._groups = cgroup.Groups()
        wake_r, wake_w = os.pipe()
        for fd in (0, 1, wake_r, wake_w):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        # Handlers, not SIG_IGN, because exec() resets only handlers to the default action. The end
        # of the runner ends the supervisor; a signal sent to its whole control group does not.
        for number in HANDLED:
            signal.signal(number, lambda *_: None)
        self._selector.register(wake_r, selectors.EVENT_READ, self._on_wake)
        self._selector.register(0, selectors.EVENT_READ, self._on_requests)
        if runner_pid is not None:
            self._watch(runner_pid)

    def _watch(self, runner_pid: int) -> None:
        if sys.platform == "linux":
            pidfd = os.pidfd_open(runner_pid)
            self._selector.register(pidfd, selectors.EVENT_READ, self._on_runner_gone)
        if os.getppid() != runner_pid:  # it died, and another process may have its pid
            raise SystemExit(f"cronledger supervisor: process {runner_pid} is not its parent")

    def run(self) -> None:
        """Run the loop. Return when the runner is gone and every command is dead."""
        self._emit({"event": "ready", "pid": os.getpid()})
        while not self._finished():
            wait = min(self._soonest, self._flush_by) - monotonic()
            for key, _ in self._selector.select(None if wait == NEVER else max(0.0, wait)):
                key.data(key.fd)
            if monotonic() >= self._soonest:
                self._check(self._commands.values())
        self._groups.close()

    def _finished(self) -> bool:
        if not self._runner_gone or self._commands:
            return False
        self._flush_by = min(self._flush_by, monotonic() + EOF_GRACE)
        return not self._events or monotonic() >= self._flush_by

    # -- the pipes -------------------------------------------------------------------------------

    def _on_requests(self, fd: int) -> None:
        data = os.read(fd, CHUNK)
        if not data:
            self._on_runner_gone(fd)
            return
        *lines, self._requests = (self._requests + data).split(b"\n")
        for line in lines:
            self._handle(json.loads(line))

    def _on_runner_gone(self, fd: int) -> None:
        self._selector.unregister(fd)
        self._runner_gone = True
        for command in tuple(self._commands.values()):
            self._stop(command, "eof", min(command.grace, EOF_GRACE))

    def _emit(self, event: dict[str, Any]) -> None:
        waiting = bool(self._events)
        self._events += json.dumps(event).encode() + b"\n"
        if not waiting and not self._flush():
            self._selector.register(1, selectors.EVENT_WRITE, self._on_writable)

    def _on_writable(self, fd: int) -> None:
        if self._flush():
            self._selector.unregister(fd)

    def _flush(self) -> bool:
        try:
            while self._events:
                del self._events[: os.write(1, self._events[:CHUNK])]
        except BlockingIOError:
            return False
        except BrokenPipeError:  # the runner is dead, so stdin ends, too
            self._events.clear()
        return True

    # -- requests --------------------------------------------------------------------------------

    def _handle(self, request: dict[str, Any]) -> None:
        match request["op"]:
            case "start":
                if refused := self._start(request):
                    self._emit(_failed(request["key"], *refused))
            case "extend":
                for key, deadline in request["deadlines"].items():
                    if command := self._commands.get(key):
                        command.extend(deadline, monotonic())
                        self._soonest = min(self._soonest, command.next_at)
            case "follow":
                if command := self._commands.get(request["key"]):
                    command.follow(request["until"])
                    self._soonest = min(self._soonest, command.show_at)
            case "stop" | "kill":
                self._reap()  # a command that has already exited was not stopped
                if command := self._commands.get(request["key"]):
                    grace = command.grace if request["op"] == "stop" else 0.0
                    self._stop(command, "stopped", grace)
            case "ping":
                self._emit({"event": "pong"})
            case other:
                raise ValueError(f"unknown request {other!r}")

    def _start(self, request: dict[str, Any]) -> tuple[str, str] | None:
        """Start a command. Return a reason and an error if no process can be started for it."""
        now = monotonic()
        command = Command(request, now)
        if command.key in self._commands:
            raise ValueError(f"command {command.key!r} is running already")
        if self._runner_gone:
            return "not_started", "not started: the runner is gone"
        if now >= command.kill_at:
            left = request["deadline"] - now
            return "too_late", f"not started: {left:.3f} s are left of its lease"
        environ = self._environ | request["env"]
        try:
            command.group = self._groups.new()
            spawned = spawn(command.argv, command.cwd, environ, self._null, command.group)
        except OSError as error:
            if command.group is not None:
                cgroup.remove(command.group)
            return "not_started", f"cannot start a process: {error.strerror}"
        command.guardian, command.control, command.report = spawned[:3]
        command.output, command.exec_status = spawned[3:]
        self._commands[command.key] = self._guardians[command.guardian] = command
        self._soonest = min(self._soonest, command.next_at)
        register = partial(self._selector.register, events=selectors.EVENT_READ)
        register(command.report, data=partial(self._on_report, command))
        register(command.output, data=partial(self._on_output, command))
        register(command.exec_status, data=partial(self._on_exec_status, command))
        return None

    def _stop(self, command: Command, reason: str, grace: float) -> None:
        """Send SIGTERM to the command, and SIGKILL after `grace` seconds or at the lease's end."""
        if command.exit_code is None and command.reason is None:
            command.reason, command.term_at = reason, NEVER
            if grace > 0:
                self._request(command, b"T")
        if command.reason is not None:
            command.kill_at = min(command.kill_at, monotonic() + grace)
        self._check((command,))

    # -- output and reports -----------------------------------------------------------------------

    def _on_output(self, command: Command, _fd: int) -> None:
        if not self._read(command):
            self._check((command,))

    def _read(self, command: Command) -> bool:
        """Read one chunk of output. Return False if there is none now, or at its end."""
        if command.output < 0:
            return False
        try:
            data = os.read(command.output, CHUNK)
        except BlockingIOError:
            return False
        command.keep(command.progress.take(data))
        if (progress := command.progress.fetch()) is not None:
            self._emit({"event": "progress", "key": command.key, **progress})
        self._soonest = min(self._soonest, command.show_at)
        if not data:
            command.output = self._close(command.output)
        return bool(data)

    def _on_exec_status(self, command: Command, _fd: int) -> None:
        """Read the error of a child that cannot start. After exec() the pipe ends without data."""
        if command.exec_status < 0:  # closed by an earlier callback of this round
            return
        status = os.read(command.exec_status, CHUNK).decode()
        command.exec_status = self._close(command.exec_status)
        if status:
            command.error = explain(status, command.argv, command.cwd)
        else:
            self._begun(command)

    def _on_report(self, command: Command, _fd: int) -> None:
        """Read the lines of the guardian."""
        if command.report < 0:
            return
        try:
            data = os.read(command.report, CHUNK)
        except BlockingIOError:
            return
        if not data:
            command.report = self._close(command.report)
        *lines, command.reported = (command.reported + data).split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"pid":
                command.pid = int(number)
                self._begun(command)
            elif word == b"exit":
                self._exited(command, int(number))
            elif word == b"killing":
                command.killing_by = NEVER
            elif word == b"left":
                command.left = number.decode()
            elif word == b"gone":
                command.gone = True
        if lines and command.exit_code is not None:
            self._check((command,))

    def _begun(self, command: Command) -> None:
        """Send `started` once the pid is known and exec() has succeeded."""
        known = command.pid > 0 and command.exec_status < 0 and command.error is None
        if known and not command.has_begun:
            command.has_begun = True
            self._emit({"event": "started", "key": command.key, "pid": command.pid})

    def _exited(self, command: Command, status: int) -> None:
        command.exit_code = os.waitstatus_to_exitcode(status)
        command.drain_by = monotonic() + DRAIN
        self._on_exec_status(command, command.exec_status)

    def _close(self, fd: int) -> int:
        self._selector.unregister(fd)
        os.close(fd)
        return -1

    def _on_wake(self, fd: int) -> None:
        os.read(fd, CHUNK)
        self._reap()

    def _reap(self) -> None:
        """Reap dead children: guardians, and orphans of lost guardians."""
        exited: list[Command] = []
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if command := self._guardians.pop(found[0], None):
                    self._guardian_ended(command)
                elif command := self._by_pid.pop(found[0], None):
                    self._exited(command, found[1])
                    exited.append(command)
        except ChildProcessError:
            pass
        self._check(exited or [c for c in self._commands.values() if c.lost])

    def _guardian_ended(self, command: Command) -> None:
        """Kill the processes of a dead guardian, unless it had reported `gone`."""
        self._on_report(command, command.report)
        os.close(command.control)
        command.control = -1
        if command.report >= 0:
            command.report = self._close(command.report)
        if not command.gone:
            command.lost, command.kill_at, command.killing_by = True, monotonic(), NEVER
            if command.exit_code is None:
                command.reason = command.reason or "guardian_died"
                self._by_pid[command.pid] = command

    # -- ending ----------------------------------------------------------------------------------

    def _check(self, commands: Iterable[Command]) -> None:
        """Run the due actions of `commands`, and note when any command's next action is due."""
        for command in tuple(commands):
            if self._commands.get(command.key) is not command:
                continue  # an earlier callback of this round ended it
            if monotonic() >= command.show_at:
                self._emit(command.news())
            if command.lost:
                self._check_lost(command, monotonic())
            elif command.exit_code is None:
                self._check_running(command, monotonic())
            else:
                self._check_exited(command, monotonic())
        self._soonest = min(
            (min(c.next_at, c.show_at) for c in self._commands.values()), default=NEVER
        )

    def _check_running(self, command: Command, now: float) -> None:
        if now >= command.kill_at:
            command.reason, command.term_at = command.reason or "lease", NEVER
            self._kill(command, now)
            command.next_at = command.killing_by
            return
        if now >= command.term_at:
            command.reason, command.term_at = "lease", NEVER
            self._request(command, b"T")
        command.next_at = min(command.term_at, command.kill_at)

    def _check_exited(self, command: Command, now: float) -> None:
        """End a command whose main process is dead, after a limited time for its other processes.

        After an exit by itself, they may run until the output ends, or for `DRAIN` seconds. After
        SIGTERM they may run until the end of the grace. Then they are killed, and `ended` is sent.
        """
        self._read_rest(command)
        if command.reason is not None:
            until = command.kill_at
        else:
            until = min(command.drain_by, command.kill_at) if command.output >= 0 else now
        if not command.gone and now >= until:
            self._kill(command, now)
        self._end_if_over(command, now)

    def _check_lost(self, command: Command, now: float) -> None:
        """Kill the processes of all lost guardians, which cannot be distinguished."""
        if command.group is not None:
            cgroup.kill(command.group)
        if LINUX:
            left = signal_descendants(os.getpid(), signal.SIGKILL, but=self._guardians)
        else:
            signal_group(command.pid, signal.SIGKILL)
            left = group_exists(command.pid)
        command.gone = not left
        command.gone_by = min(command.gone_by, now + GONE)
        command.drain_by = min(command.drain_by, now + DRAIN)
        self._read_rest(command)
        self._end_if_over(command, now)

    def _read_rest(self, command: Command) -> None:
        # At most a full pipe of the largest size, because an escaped writer may never end.
        for _ in range(16):
            if not self._read(command):
                break

    def _end_if_over(self, command: Command, now: float) -> None:
        drained = command.output < 0 or now >= command.drain_by
        if (drained and command.gone) or now >= command.gone_by:
            self._end(command)
        else:
            command.next_at = now + POLL

    def _kill(self, command: Command, now: float) -> None:
        """Request a kill from the guardian. Kill a guardian that does not confirm the request."""
        if command.gone_by == NEVER:
            command.gone_by, command.killing_by = now + GONE, now + DEAF
            self._request(command, b"K")
        elif now >= command.killing_by:
            command.killing_by = NEVER
            signal_process(command.guardian, signal.SIGKILL)

    def _request(self, command: Command, what: bytes) -> None:
        with suppress(OSError):  # the guardian is dead, and perhaps not reaped yet
            os.write(command.control, what)

    def _end(self, command: Command) -> None:
        if command.output >= 0:
            command.output = self._close(command.output)
        if command.exec_status >= 0:
            command.exec_status = self._close(command.exec_status)
        self._by_pid.pop(command.pid, None)
        if command.lost and command.group is not None:
            cgroup.remove(command.group)
        del self._commands[command.key]
        if command.error is not None:
            self._emit(_failed(command.key, "not_started", command.error))
        else:
            self._emit(command.ended())


def _failed(key: str, reason: str, error: str) -> dict[str, str]:
    return {"event": "failed", "key": key, "reason": reason, "error": error}


if __name__ == "__main__":
    gc.freeze()  # forked children share the pages of objects that no collection touches
    Supervisor(int(sys.argv[1]) if len(sys.argv) > 1 else None).run()

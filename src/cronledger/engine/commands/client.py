"""The asyncio client of the supervisor process. Its commands cannot outlive their lease.

The thread of the loop owns the process and reads its events. `extend`, `stop` and `kill` are
thread-safe, because the heartbeat thread writes deadlines while a bad handler blocks the loop. All
writers append whole lines to one buffer under one lock, and none of them waits for the pipe.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal

Reason = Literal[
    "exited",
    "stopped",
    "lease",
    "eof",
    "guardian_died",
    "supervisor_died",
    "not_started",
    "too_late",
]

ProgressReport = Callable[[int, int | None, str | None], None]
OnOutput = Callable[[str, int], None]
"""Takes new output of a command, and how many bytes before it are missing."""

CLOSE_SECONDS = 6.0
"""`close` waits this long for the commands to end (they have 2 s), then kills the supervisor."""
STUCK_SECONDS = 5.0
"""A supervisor is killed if it reports no end of an overdue command for this long, and then does
not respond to a ping for as long."""
LAST_SECONDS = 2.5
"""When a supervisor is dead, its guardians kill its commands within this time."""
_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """The end of a command.

    `returncode` is set if it exited, and `signal` if a signal ended it; neither is set if that is
    unknown. `reason`: it exited by itself; `stop`, `kill` or a cancellation stopped it; its lease
    ended; its guardian died; the supervisor was closed (eof) or died; or it was not started,
    because of `error`, or because its deadline had passed (too_late). `output` is the decoded tail
    of stdout and stderr. `missing`: the bytes before it.
    """

    returncode: int | None
    signal: int | None
    reason: Reason
    output: str
    missing: int
    error: str | None


@dataclass(slots=True)
class _Run:
    future: asyncio.Future[CommandEnd]
    deadline: float
    process: "_Process"
    progress: ProgressReport | None
    output: OnOutput | None
    pid: int | None = None


@dataclass(slots=True)
class _Process:
    """The client's view of one supervisor process."""

    loop: asyncio.AbstractEventLoop
    popen: subprocess.Popen[bytes]
    stdin: int
    stdout: int
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    is_ready: bool = False
    heard_at: float = 0.0
    received: bytes = b""
    unsent: bytearray = field(default_factory=bytearray)
    over: bool = False


class Supervisor:
    """Runs commands under one supervisor process, which is started when it is needed.

    `base_env` is the environment that commands inherit. It must not contain secrets of the runner.
    None: the environment that the runner has when the process starts. Use it from one event loop.
    """

    def __init__(self, base_env: Mapping[str, str] | None = None) -> None:
        self._base_env = base_env
        self._lock = threading.Lock()  # guards _process, its `unsent`, and the keys of _runs
        self._process: _Process | None = None
        self._runs: dict[str, _Run] = {}
        self._closed = False

    async def start(self) -> None:
        """Start the supervisor process and wait until it is ready. Idempotent.

        Raises RuntimeError if it cannot start.
        """
        process = self._ensure()
        await process.ready.wait()
        if not process.is_ready:
            status = process.popen.returncode
            raise RuntimeError(f"the command supervisor exited with status {status} at startup")

    async def close(self) -> None:
        """End all commands, with the reason `eof`, and the supervisor. Idempotent."""
        self._closed = True
        process = self._process
        if process is None:
            return
        with self._lock:
            self._close_stdin(process)
        give_up_at = monotonic() + CLOSE_SECONDS
        while not process.over:  # until _on_events has read the end of its stdout
            if monotonic() >= give_up_at:
                self._kill_process(process)
            await asyncio.sleep(0.005)

    async def run(
        self,
        key: str,
        *,
        argv: Sequence[str] | None,
        shell: str | None,
        env: Mapping[str, str],
        cwd: str | None,
        deadline: float,
        tail_bytes: int = 65536,
        grace: float = 5.0,
        progress: ProgressReport | None = None,
        output: OnOutput | None = None,
        follow_seconds: float = 0.0,
    ) -> CommandEnd:
        """Run `argv`, or `shell` by /bin/sh -c, until it ends or until `deadline` of `monotonic()`.

        `env` is added to the environment. At the deadline no process of the command is alive;
        `extend` moves it. SIGTERM is sent `grace` seconds before SIGKILL, or later if the lease is
        short. If the task is cancelled, the command gets SIGTERM, and SIGKILL after `grace`. A
        second cancellation sends SIGKILL. The task is cancelled when the command is dead.
        `progress` is called with done, total and text of progress lines in the output.

        `output` is called in the event loop with what the command writes, every two seconds, and
        for `follow_seconds` at once. What it writes last is only in the CommandEnd.

        Raises ValueError unless exactly one of `argv` and `shell` is given, and if `key` is
        running. Raises RuntimeError after `close`. Any other failure to start is returned as
        `not_started`, or as `too_late` if the deadline had passed.
        """
        if (argv is None) == (shell is None):
            raise ValueError(f"command {key!r}: give exactly one of argv and shell")
        if key in self._runs:
            raise ValueError(f"command {key!r} is running already")
        if error := _unfit(argv, shell, env, cwd):
            return _not_started(error)
        request = {
            "op": "start",
            "key": key,
            "argv": None if argv is None else list(argv),
            "shell": shell,
            "env": dict(env),
            "cwd": cwd,
            "deadline": deadline,
            "tail_bytes": tail_bytes,
            "grace": grace,
            "shown": output is not None,
            "follow_until": monotonic() + follow_seconds,
        }
        try:
            run = self._begin(key, request, progress, output)
        except OSError as error:
            return _not_started(f"cannot start the command supervisor: {error}")
        return await self._until_dead(key, run)

    def extend(self, deadlines: Mapping[str, float]) -> None:
        """Move the deadlines of these commands to these instants of `monotonic()`.

        Unknown keys are ignored. Thread-safe, never waits.
        """
        with self._lock:
            running = {key: when for key, when in deadlines.items() if key in self._runs}
            for key, when in running.items():
                self._runs[key].deadline = when
            if running:
                self._send({"op": "extend", "deadlines": running})

    def follow(self, key: str, seconds: float) -> None:
        """Pass the output of the command on at once for so long. Thread-safe, never waits."""
        with self._lock:
            if key in self._runs:
                self._send({"op": "follow", "key": key, "until": monotonic() + seconds})

    def stop(self, key: str) -> None:
        """Send SIGTERM to the command, and SIGKILL after its grace. Thread-safe, never waits."""
        with self._lock:
            self._send({"op": "stop", "key": key})

    def kill(self, key: str) -> None:
        """Send SIGKILL to the command. Thread-safe, never waits."""
        with self._lock:
            self._send({"op": "kill", "key": key})

    # -- one command -----------------------------------------------------------------------------

    def _begin(
        self, key: str, request: dict[str, Any], progress: ProgressReport | None,
        output: OnOutput | None,
    ) -> _Run:  # fmt: skip
        process = self._ensure()
        future = asyncio.get_running_loop().create_future()
        run = _Run(future, request["deadline"], process, progress, output)
        with self._lock:
            sent = self._send(request)
            if sent:
                self._runs[key] = run
        if not sent:  # the process is dead, and the end of its stdout is not read yet
            self._kill_process(process)
            run.process = self._spawn()
            with self._lock:
                self._runs[key] = run
                self._send(request)
        return run

    async def _until_dead(self, key: str, run: _Run) -> CommandEnd:
        cancelled: asyncio.CancelledError | None = None
        while not run.future.done():
            try:
                await self._wait(run)
            except asyncio.CancelledError as error:
                (self.stop if cancelled is None else self.kill)(key)
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return run.future.result()

    async def _wait(self, run: _Run) -> None:
        """Wait for the end. Kill a supervisor that misses the deadline and does not respond.

        A stopped or starved supervisor enforces no deadline. Its death ends its commands.
        """
        left = max(0.0, run.deadline - monotonic())
        await asyncio.wait({run.future}, timeout=left + STUCK_SECONDS)
        process = run.process
        if run.future.done() or monotonic() < run.deadline + STUCK_SECONDS:
            return
        asked_at = monotonic()
        with self._lock:
            if process is self._process:
                self._send({"op": "ping"})
        await asyncio.wait({run.future}, timeout=STUCK_SECONDS)
        if process is self._process and process.heard_at < asked_at:
            self._kill_process(process)

    # -- the process -----------------------------------------------------------------------------

    def _ensure(self) -> _Process:
        if self._closed:
            raise RuntimeError("the command supervisor is closed")
        return self._process or self._spawn()

    def _spawn(self) -> _Process:
        loop = asyncio.get_running_loop()
        popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "cronledger.engine.commands.supervisor", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=self._base_env,
            start_new_session=True,  # a terminal's Ctrl-C is for the runner, which drains
        )
        assert popen.stdin is not None
        assert popen.stdout is not None
        process = _Process(loop, popen, popen.stdin.fileno(), popen.stdout.fileno())
        os.set_blocking(process.stdin, False)
        os.set_blocking(process.stdout, False)
        with self._lock:
            self._process = process
        loop.add_reader(process.stdout, self._on_events, process)
        return process

    def _kill_process(self, process: _Process) -> None:
        """Kill the supervisor, if it is not dead already.

        Its guardians kill its commands. They hold its stdout until that is done: `_on_events` reads
        its end and ends the runs.
        """
        if self._process is not process:
            return
        with self._lock:
            self._process = None
            self._close_stdin(process)
        process.popen.kill()
        process.popen.wait()  # a killed process ends at once
        process.ready.set()
        process.loop.call_later(LAST_SECONDS, self._end_runs, process)

    def _end_runs(self, process: _Process) -> None:
        """End the remaining commands as `supervisor_died`; supervisor and guardians are dead.

        If a guardian was killed as well, PR_SET_PDEATHSIG ended its direct child, and the rest of
        the process group is killed here. The number of a group is not reused while the group has a
        member.
        """
        if process.over:
            return
        process.over = True
        process.loop.remove_reader(process.stdout)
        with suppress(subprocess.TimeoutExpired):  # its own status, if it is exiting
            process.popen.wait(0.1)
        self._kill_process(process)
        assert process.popen.stdout is not None
        process.popen.stdout.close()
        with self._lock:
            runs = {key: run for key, run in self._runs.items() if run.process is process}
            for key in runs:
                del self._runs[key]
        status = process.popen.returncode
        end = CommandEnd(None, None, "supervisor_died", "", 0, f"it ended with status {status}")
        if not process.is_ready:
            end = _not_started(f"the command supervisor exited with status {status} at startup")
        for run in runs.values():
            if run.pid is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(run.pid, signal.SIGKILL)
            run.future.set_result(end)

    # -- events ----------------------------------------------------------------------------------

    def _on_events(self, process: _Process) -> None:
        try:
            data = os.read(process.stdout, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._end_runs(process)
            return
        process.heard_at = monotonic()
        *lines, process.received = (process.received + data).split(b"\n")
        for line in lines:
            self._on_event(process, json.loads(line))

    def _on_event(self, process: _Process, event: dict[str, Any]) -> None:
        match event["event"]:
            case "ready":
                process.is_ready = True
                process.ready.set()
            case "started":
                self._runs[event["key"]].pid = event["pid"]
            case "progress":
                report = self._runs[event["key"]].progress
                if report is not None:
                    report(event["done"], event["total"], event["text"])
            case "output":
                show = self._runs[event["key"]].output
                assert show is not None, "the request asked for it"
                show(event["text"], event["missing"])
            case "failed":
                self._settle(event["key"], _not_started(event["error"], event["reason"]))
            case "ended":
                code, number = event["returncode"], event["signal"]
                output, missing = event["output"], event["missing"]
                end = CommandEnd(code, number, event["reason"], output, missing, None)
                self._settle(event["key"], end)

    def _settle(self, key: str, end: CommandEnd) -> None:
        with self._lock:
            run = self._runs.pop(key)
        run.future.set_result(end)

    # -- writing; all with the lock held ---------------------------------------------------------

    def _send(self, request: dict[str, Any]) -> bool:
        """Append one line and write what the pipe takes. Return False if the process is dead."""
        process = self._process
        if process is None or process.popen.stdin is None:
            return False
        waiting = bool(process.unsent)
        process.unsent += json.dumps(request).encode() + b"\n"
        try:
            self._write(process)
        except BrokenPipeError:
            process.unsent.clear()
            return False
        if process.unsent and not waiting:
            process.loop.call_soon_threadsafe(self._write_later, process)
        return True

    def _write(self, process: _Process) -> None:
        with suppress(BlockingIOError):
            while process.unsent:
                del process.unsent[: os.write(process.stdin, process.unsent[:_CHUNK])]

    def _close_stdin(self, process: _Process) -> None:
        if process.popen.stdin is not None:
            process.loop.remove_writer(process.stdin)
            process.popen.stdin.close()
            process.popen.stdin = None

    # -- writing the rest, in the loop's thread ---------------------------------------------------

    def _write_later(self, process: _Process) -> None:
        with self._lock:
            if process.popen.stdin is not None:
                process.loop.add_writer(process.stdin, self._on_writable, process)

    def _on_writable(self, process: _Process) -> None:
        with self._lock:
            if process.popen.stdin is None:
                return
            try:
                self._write(process)
            except BrokenPipeError:
                process.unsent.clear()
            if not process.unsent:
                process.loop.remove_writer(process.stdin)


def _not_started(error: str, reason: Reason = "not_started") -> CommandEnd:
    return CommandEnd(None, None, reason, "", 0, error)


def _unfit(
    argv: Sequence[str] | None, shell: str | None, env: Mapping[str, str], cwd: str | None
) -> str | None:
    """Return an error about a value that the operating system cannot take, or None."""
    if argv is not None and not argv:
        return "argv is empty: give the program and its arguments"
    texts = [("argv", word) for word in argv or ()] + [("shell", shell or ""), ("cwd", cwd or "")]
    for name, text in texts:
        if "\0" in text:
            return f"{name} contains a NUL character: {text!r}: remove it"
    for name, text in env.items():
        if not name or "=" in name or "\0" in name:
            return f"invalid environment variable name {name!r}: it is empty, or contains = or NUL"
        if "\0" in text:
            return f"environment variable {name} contains a NUL character: remove it"
    return None

"""Commands under the supervisor: real processes, no database."""

import asyncio
import fcntl
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cronledger.engine.commands import client, guardian
from cronledger.engine.commands import spawn as process_module
from cronledger.engine.commands.cgroup import _home, _own
from cronledger.engine.commands.client import CommandEnd, Supervisor
from cronledger.engine.commands.guardian import LAST
from cronledger.engine.commands.supervised import KILL_LEAD
from tests.processes import alive, children
from tests.waiting import eventually, until

PYTHON = [sys.executable, "-S", "-c"]

STAMPS = """
import os, signal, sys, time
def on_term(*_):
    with open(sys.argv[1] + ".term", "w") as file: file.write(str(time.monotonic()))
signal.signal(signal.SIGTERM, on_term)
with open(sys.argv[1] + ".pid", "w") as file: file.write(str(os.getpid()))
with open(sys.argv[1], "a", buffering=1) as file:
    while True:
        file.write(f"{time.monotonic()}\\n")
        time.sleep(0.002)
"""
"""A program that outlives SIGTERM and appends an instant of the host's clock every 2 ms."""

RUNNER = """
import asyncio, json, os, sys, time
from cronledger.engine.commands.client import Supervisor
async def main(commands, python, forks):
    sys.executable = python
    supervisor = Supervisor()
    await supervisor.start()
    tasks = []
    for index, (argv, grace) in enumerate(commands):
        coroutine = supervisor.run(str(index), argv=argv, shell=None, env={}, cwd=None,
                                   deadline=time.monotonic() + 6000, grace=grace)
        tasks.append(asyncio.create_task(coroutine))
    await asyncio.sleep(0)
    fork = os.fork() if forks else None
    if fork == 0:  # holds copies of both pipes of the supervisor
        time.sleep(60)
        os._exit(0)
    def extend():
        supervisor.extend({"0": float(sys.stdin.readline())})
        print("extended", flush=True)
    asyncio.get_running_loop().add_reader(0, extend)
    print(json.dumps([supervisor._process.popen.pid, fork]), flush=True)
    await asyncio.gather(*tasks)
asyncio.run(main(*json.loads(sys.argv[1])))
"""
"""Runs commands until it is killed. A line of its stdin is a new deadline of the first command."""

LEAD, GRACE = 30.0, 60.0
PATIENT = f"""
import sys
from cronledger.engine.commands import supervised, supervisor
extend = supervised.Command.extend
supervised.Command.extend = lambda self, deadline, now: extend(self, deadline, now - 6000)
supervised.KILL_LEAD = {LEAD}
supervisor.EOF_GRACE = supervisor.GONE = supervisor.DEAF = {GRACE}
supervisor.Supervisor(int(sys.argv[1])).run()
"""
"""A supervisor whose limits no busy machine exceeds. It kills LEAD seconds before a deadline, and
waits GRACE seconds for a runner that is gone and for guardians. Each lease counts as an old one:
SIGTERM comes the whole grace of the command before SIGKILL."""


wait_until = partial(until, "the condition becomes true")
soon = partial(eventually, "the condition becomes true")


def numbers(path: Path) -> list[float]:
    """The complete lines of a file that somebody may be writing."""
    if not path.exists():
        return []
    return [float(line) for line in path.read_text().rpartition("\n")[0].split()]


def stamper(stamps: Path) -> int:
    return int(Path(f"{stamps}.pid").read_text())


def patient_python(directory: Path) -> str:
    """Return a program that starts PATIENT where a Python would start the supervisor."""
    program = directory / "patient-python"
    words = shlex.join([sys.executable, "-P", "-c", PATIENT])
    program.write_text(f'#!/bin/sh\nexec {words} "$4"\n')
    program.chmod(0o755)
    return str(program)


def pids(path: Path, count: int) -> Callable[[], bool]:
    return lambda: len(numbers(path)) == count


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def unread(fd: int) -> int:
    """The number of bytes in a pipe."""
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)


def group_of(pid: int) -> str:
    """The path of the control group (v2) of a process."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next((line[3:] for line in lines if line.startswith("0::")), "")


def supervisor_pid(supervisor: Supervisor) -> int:
    assert supervisor._process is not None
    return supervisor._process.popen.pid


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    made = Supervisor()
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Supervisor]:
    """One with the limits of PATIENT."""
    made = Supervisor()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", patient_python(tmp_path))
        await made.start()
    yield made
    await made.close()


async def run(
    supervisor: Supervisor,
    argv: Sequence[str] | str,
    *,
    key: str = "one",
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    lease: float = 600.0,
    tail_bytes: int = 65536,
    grace: float = 5.0,
) -> CommandEnd:
    """A text runs in the shell."""
    return await supervisor.run(
        key,
        argv=None if isinstance(argv, str) else argv,
        shell=argv if isinstance(argv, str) else None,
        env=env or {},
        cwd=cwd,
        deadline=time.monotonic() + lease,
        tail_bytes=tail_bytes,
        grace=grace,
    )


# -- how commands run and end -----------------------------------------------------------------


async def test_output_environment_directory_and_stdin(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    shell = "cat; pwd; echo $CRONLEDGER_JOB; echo $HOME >&2"
    end = await run(supervisor, shell, env={"CRONLEDGER_JOB": "näm e"}, cwd=str(tmp_path))
    expected = f"{tmp_path}\nnäm e\n{os.environ['HOME']}\n"
    assert end == CommandEnd(0, None, "exited", expected, 0, None)
    without_shell = await run(supervisor, ["echo", "$HOME", "a  b", "*"])
    assert without_shell.output == "$HOME a  b *\n"


async def test_exit_codes_and_signals(supervisor: Supervisor) -> None:
    for shell, returncode, number in (
        ("exit 255", 255, None),
        ("kill -KILL $$", None, signal.SIGKILL),
        # The supervisor's handlers, and Python's ignored SIGPIPE, are not the child's.
        ("kill -TERM $$; exit 1", None, signal.SIGTERM),
        ("kill -PIPE $$; exit 1", None, signal.SIGPIPE),
    ):
        assert await run(supervisor, shell) == CommandEnd(returncode, number, "exited", "", 0, None)


@pytest.mark.long
async def test_the_tail_of_the_output_is_kept_and_decoded(supervisor: Supervisor) -> None:
    end = await run(supervisor, "head -c 1000000 /dev/zero | tr '\\0' x; echo END")
    assert (end.output, end.missing) == ("x" * (65536 - 4) + "END\n", 1000000 + 4 - 65536)
    for octets, tail_bytes, output, missing in (
        (b"12345", 5, "12345", 0),
        (b"12345", 0, "", 5),
        (b"a\0b\xffc", 9, "ab\ufffdc", 0),
        ("aäöü".encode(), 5, "öü", 3),  # a tail begins at a character
        (b"\x80\x80\x80\x80\x80\x80", 5, "\ufffd" * 5, 1),
    ):
        shell = "printf '" + "".join(f"\\{octet:03o}" for octet in octets) + "'"
        end = await run(supervisor, shell, tail_bytes=tail_bytes)
        assert (end.output, end.missing) == (output, missing)


async def test_a_command_that_cannot_start_has_an_error(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    (tmp_path / "plain").write_text("no program")
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    (tmp_path / "script").chmod(0o755)
    cases: list[tuple[list[str], dict[str, Any], str]] = [
        (["no-such-command-here"], {}, "'no-such-command-here' is not in a directory of PATH"),
        (["./nothing"], {}, "command not found: './nothing'"),
        ([f"{tmp_path}/script"], {}, "the interpreter in its first line, does not exist"),
        ([f"{tmp_path}/plain"], {}, "is not an executable file"),
        (["true"], {"cwd": "/no/such/dir"}, "cannot change to cwd '/no/such/dir': No such file"),
        (["true", "x" * 3_000_000], {}, "cannot run 'true' (exec): Argument list too long"),
        (["true", "a\0b"], {}, "argv contains a NUL character: 'a\\x00b'"),
        ([], {}, "argv is empty"),
        (["true"], {"env": {"A=B": "c"}}, "invalid environment variable name 'A=B'"),
        (["true"], {"env": {"A": "c\0"}}, "environment variable A contains a NUL"),
    ]
    for argv, changes, error in cases:
        end = await run(supervisor, argv, **changes)
        assert (end.returncode, end.signal, end.reason) == (None, None, "not_started")
        assert (end.output, error in (end.error or "")) == ("", True), end.error
    assert (await run(supervisor, "exit 4")).returncode == 4


async def test_a_command_with_too_little_lease_is_not_started(supervisor: Supervisor) -> None:
    end = await run(supervisor, ["true"], lease=KILL_LEAD / 2)
    assert (end.returncode, end.signal, end.reason, end.output) == (None, None, "too_late", "")
    assert end.error is not None
    assert "s are left of its lease" in end.error
    end = await run(supervisor, "sleep 0.2; exit 6", lease=60, grace=600)
    assert (end.returncode, end.reason) == (6, "exited")  # a long grace leaves it its lease


async def test_base_env_replaces_the_environment_of_the_runner() -> None:
    supervisor = Supervisor({"PATH": os.environ["PATH"], "KEPT": "1"})
    end = await run(supervisor, ["env"], env={"ADDED": "2"})
    await supervisor.close()
    names = {line.partition("=")[0] for line in end.output.splitlines()}
    assert {"PATH", "KEPT", "ADDED"} <= names <= {"PATH", "KEPT", "ADDED", "LC_CTYPE"}


# -- stopping, and the whole session ----------------------------------------------------------


async def test_stop_lets_a_command_end_itself(supervisor: Supervisor, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = f"""
import pathlib, signal, sys
def on_term(*_):
    print("bye")
    sys.exit(7)
signal.signal(signal.SIGTERM, on_term)
pathlib.Path({str(ready)!r}).touch()
signal.pause()
"""
    task = asyncio.create_task(run(supervisor, [*PYTHON, code], grace=600))
    await soon(ready.exists)
    supervisor.stop("one")
    assert await task == CommandEnd(7, None, "stopped", "bye\n", 0, None)


async def test_stop_kills_after_the_grace(supervisor: Supervisor, tmp_path: Path) -> None:
    task = await stamping(supervisor, tmp_path / "stamps", grace=0.3)
    stopped_at = time.monotonic()
    supervisor.stop("one")
    assert await task == CommandEnd(None, signal.SIGKILL, "stopped", "", 0, None)
    assert time.monotonic() - stopped_at >= 0.3


async def test_a_stop_sent_with_the_start_is_not_lost(supervisor: Supervisor) -> None:
    """SIGTERM that comes between fork() and exec() ends the child."""
    tasks = []
    for index in range(20):
        tasks.append(asyncio.create_task(run(supervisor, "sleep 60", key=f"k{index}", grace=600)))
        await asyncio.sleep(0)
        supervisor.stop(f"k{index}")
    ends = await asyncio.wait_for(asyncio.gather(*tasks), 90)
    assert {(end.signal, end.reason) for end in ends} == {(signal.SIGTERM, "stopped")}


async def test_the_output_names_the_processes_that_a_command_left(patient: Supervisor) -> None:
    begun = "; until grep -q sleep /proc/$!/comm; do sleep 0.01; done; "
    two = f"sleep 600 & echo $!{begun} sleep 601 & echo $!{begun} printf 'no newline'"
    end = await asyncio.wait_for(run(patient, two), 90)
    first, second, last, told = end.output.splitlines()
    assert (end.returncode, end.reason, last) == (0, "exited", "no newline")
    assert not any(alive(int(pid)) for pid in (first, second))
    assert told == (
        f"cronledger: ended 2 processes that the command left running: sleep ({first}), "
        f"sleep ({second})"
    )
    many = "for i in 1 2 3 4 5 6 7; do sleep 600 & done"
    assert (await run(patient, many)).output.endswith(", and 2 more\n")
    for quiet in ("sleep 0 & wait", "true"):
        assert (await run(patient, quiet)).output == ""


DAEMON = [
    *PYTHON,
    """
import os, signal, sys, time
def on_term(*_):
    open(sys.argv[1] + ".term", "w").close()
    if "deaf" not in sys.argv:
        os._exit(0)
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.chdir("/")
signal.signal(signal.SIGTERM, on_term)
with open(sys.argv[1], "a") as file: file.write(f"{os.getpid()}\\n")
time.sleep(600)
""",
]
"""Becomes a daemon, as daemons do, and writes its pid to the file it is given."""


def daemon(seen: Path, *options: str) -> str:
    """A line of shell that starts a daemon with nothing in its environment, and waits for it."""
    started = shlex.join(["env", "-i", *DAEMON, str(seen), *options])
    return f"{started}; while ! [ -s {seen} ]; do sleep 0.01; done; "


async def test_a_daemon_dies_with_the_command_that_started_it(
    patient: Supervisor, tmp_path: Path
) -> None:
    seen = tmp_path / "pids"
    end = await asyncio.wait_for(run(patient, daemon(seen) + "exit 3"), 90)
    assert (end.returncode, end.reason) == (3, "exited")
    (pid,) = numbers(seen)
    assert not alive(int(pid))


@pytest.mark.parametrize("way", ["kill", "cancel", "lease"])
async def test_everything_that_a_command_started_is_stopped_with_it(
    patient: Supervisor, tmp_path: Path, way: str
) -> None:
    """Children, a process group of its own (`timeout` makes one), a double fork and a daemon."""
    seen = tmp_path / "pids"
    shell = f"""
        {daemon(seen, "deaf")}
        me() {{ sh -c 'echo $PPID' >> {seen}; }}
        (trap '' TERM; me; while :; do sleep 0.01; done) &
        timeout 600 sh -c 'echo $PPID >> {seen}; echo $$ >> {seen}; sleep 601; :' &
        ( (me; sleep 600; :) & )
        me
        wait
    """
    task = asyncio.create_task(run(patient, shell, grace=600, lease=6000))
    await soon(pids(seen, 6))
    members = [int(pid) for pid in numbers(seen)]
    assert all(map(alive, members))
    assert len({os.getsid(pid) for pid in members}) == 2
    assert len({os.getpgid(pid) for pid in members}) == 3
    asked = tmp_path / "pids.term"
    if way == "lease":
        patient.extend({"one": time.monotonic() + LEAD + 1})
    elif way == "cancel":
        task.cancel()
        await soon(asked.exists)
        assert not task.done()  # cancelled, and yet it waits for the command
        task.cancel()
    else:
        patient.kill("one")
    if way == "cancel":
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        end = await task
        assert (end.reason, end.output) == ("lease" if way == "lease" else "stopped", "")
    assert not any(map(alive, members))
    assert way != "kill" or not asked.exists()


async def test_orphans_of_a_command_are_reaped_while_it_runs(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    seen = tmp_path / "pids"
    task = asyncio.create_task(run(supervisor, f"(sh -c 'echo $$' >> {seen} &); sleep 600"))
    await soon(pids(seen, 1))
    (pid,) = map(int, numbers(seen))
    await soon(lambda: not Path(f"/proc/{pid}").exists())
    supervisor.kill("one")
    await task


def test_descendants_are_found_where_the_kernel_does_not_list_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE) as sh:
        assert sh.stdout is not None
        sleeps = int(sh.stdout.readline())
        listed = process_module._descendants(os.getpid(), ())
        monkeypatch.setattr(process_module, "_LISTED", False)
        scanned = process_module._descendants(os.getpid(), ())
        assert {sh.pid, sleeps} <= set(listed) & set(scanned)
        assert not {sh.pid, sleeps} & set(process_module._descendants(os.getpid(), {sh.pid}))
        os.kill(sleeps, signal.SIGKILL)


async def stamping(
    supervisor: Supervisor, stamps: Path, **options: Any
) -> asyncio.Task[CommandEnd]:
    """Run STAMPS, and wait for the first stamp."""
    task = asyncio.create_task(run(supervisor, [*PYTHON, STAMPS, str(stamps)], **options))
    await soon(lambda: numbers(stamps))
    return task


# -- the lease --------------------------------------------------------------------------------


async def test_the_end_of_a_lease_begins_with_sigterm(patient: Supervisor, tmp_path: Path) -> None:
    stamps, asked = tmp_path / "stamps", tmp_path / "stamps.term"
    task = await stamping(patient, stamps, grace=GRACE)
    deadline = time.monotonic() + LEAD + GRACE + 0.5
    patient.extend({"one": deadline})
    await soon(lambda: asked.exists() and asked.read_text())
    assert float(asked.read_text()) >= deadline - LEAD - GRACE
    assert not task.done()
    patient.kill("one")
    assert (await task).reason == "lease"


@pytest.mark.long
async def test_extend_works_from_a_thread_while_the_loop_is_blocked(
    patient: Supervisor, tmp_path: Path
) -> None:
    """The second deadline is the later one. The supervisor reads both at once."""
    stamps, deadlines = tmp_path / "stamps", list[float]()

    def beat() -> None:
        for seconds in (0, 1):
            deadlines.append(time.monotonic() + LEAD + seconds)
            patient.extend({"one": deadlines[-1], "unknown": 0.0})

    task = await stamping(patient, stamps, grace=0)
    pid = supervisor_pid(patient)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state(pid) == "T")  # from here on in the loop's thread, on purpose
    thread = threading.Thread(target=beat)
    thread.start()
    thread.join()
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not alive(stamper(stamps)))
    assert time.monotonic() >= deadlines[-1] - LEAD
    assert numbers(stamps)[-1] < deadlines[-1]
    end = await task
    assert (end.signal, end.reason) == (signal.SIGKILL, "lease")


async def test_a_deadline_holds_while_nobody_reads_the_events(
    patient: Supervisor, tmp_path: Path
) -> None:
    """The events of eight long outputs are more than a pipe takes: the supervisor may not block."""
    stamps, gate = tmp_path / "stamps", tmp_path / "gate"
    os.mkfifo(gate)
    victim = await stamping(patient, stamps, key="v")
    noisy = f"read x < {gate}; head -c 65536 /dev/zero | tr '\\0' x"
    others = [asyncio.create_task(run(patient, noisy, key=str(i))) for i in range(8)]
    await soon(lambda: len(patient._runs) == 9)
    writer = os.open(gate, os.O_RDWR)
    os.write(writer, b"\n" * 8)
    assert patient._process is not None
    events = patient._process.stdout
    capacity = fcntl.fcntl(events, fcntl.F_GETPIPE_SZ)
    wait_until(lambda: unread(events) > capacity / 2)  # the loop stands still
    deadline = time.monotonic() + LEAD + 0.5
    patient.extend({"v": deadline})
    wait_until(lambda: not alive(stamper(stamps)))
    assert numbers(stamps)[-1] < deadline
    assert (await victim).reason == "lease"
    assert {len(end.output) for end in await asyncio.gather(*others)} == {65536}
    os.close(writer)


async def test_requests_wait_in_memory_while_the_supervisor_does_not_read(
    supervisor: Supervisor,
) -> None:
    """600 KB of requests: more than a pipe takes, and every line arrives whole."""
    os.kill(supervisor_pid(supervisor), signal.SIGSTOP)
    big = {"BIG": "x" * 30_000}
    tasks = [
        asyncio.create_task(run(supervisor, "echo ${#BIG}", key=str(index), env=big))
        for index in range(20)
    ]
    await soon(lambda: len(supervisor._runs) == 20)
    assert supervisor._process is not None
    assert supervisor._process.unsent
    threading.Thread(target=supervisor.stop, args=("unknown",)).start()
    os.kill(supervisor_pid(supervisor), signal.SIGCONT)
    assert {end.output for end in await asyncio.gather(*tasks)} == {"30000\n"}


# -- the runner dies or stands still ----------------------------------------------------------


@contextmanager
def runner(
    *commands: tuple[list[str], float], python: str = sys.executable, forks: bool = False
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that runs commands with these graces: (process, pid of its supervisor)."""
    argv = [sys.executable, "-c", RUNNER, json.dumps([commands, python, forks])]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        supervisor, fork = json.loads(process.stdout.readline())
        try:
            yield process, supervisor
        finally:
            process.kill()
            if fork is not None:
                with suppress(ProcessLookupError):
                    os.kill(fork, signal.SIGKILL)
            wait_until(lambda: not alive(supervisor))


def extend_first(process: subprocess.Popen[str], deadline: float) -> None:
    """Move the deadline of the first command of a runner."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{deadline}\n")
    process.stdin.flush()
    assert process.stdout.readline() == "extended\n"


@pytest.mark.parametrize("forks", [False, True], ids=["", "a fork of it holds the pipes"])
def test_kill_9_of_the_runner_ends_its_commands(tmp_path: Path, forks: bool) -> None:
    mild, hard, seen = tmp_path / "mild", tmp_path / "stamps", tmp_path / "pids"
    shell = f"trap 'touch {mild}; exit' TERM; echo $$ >> {seen}; while :; do sleep 0.01; done"
    commands = (["sh", "-c", shell], GRACE), ([*PYTHON, STAMPS, str(hard)], 0.3)
    with runner(*commands, python=patient_python(tmp_path), forks=forks) as (process, supervisor):
        wait_until(lambda: numbers(seen) and numbers(hard))
        killed_at = time.monotonic()
        process.kill()
        wait_until(lambda: not alive(stamper(hard)))
        assert time.monotonic() >= killed_at + 0.3
        wait_until(lambda: not alive(supervisor))
        assert mild.exists()
        assert not alive(int(numbers(seen)[0]))


@pytest.mark.parametrize("first", ["runner", "supervisor"])
def test_nothing_outlives_kill_9_of_runner_and_supervisor(tmp_path: Path, first: str) -> None:
    """Neither a grandchild, nor what left the session, nor what ignores SIGTERM."""
    seen, stamps = tmp_path / "pids", (tmp_path / "stamps-1", tmp_path / "stamps-2")

    def command(hard: Path) -> list[str]:
        shell = f"""
            {daemon(seen, "deaf")}
            (trap '' TERM; sh -c 'echo $PPID' >> {seen}; while :; do sleep 0.01; done) &
            setsid sh -c 'echo $$ >> {seen}; sleep 600; :' &
            {shlex.join([*PYTHON, STAMPS, str(hard)])} &
            sh -c 'echo $PPID' >> {seen}
            wait
        """
        return ["sh", "-c", shell]

    with runner(*[(command(hard), 0.3) for hard in stamps]) as (process, supervisor):
        wait_until(lambda: pids(seen, 8)() and all(map(numbers, stamps)))
        members = [*map(int, numbers(seen)), *map(stamper, stamps)]
        guardians = children(supervisor)
        assert [pid for pid in members if not alive(pid)] == []
        for pid in (process.pid, supervisor) if first == "runner" else (supervisor, process.pid):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(alive, members)))
        wait_until(lambda: not any(map(alive, guardians)))
    assert LAST < 2


@pytest.mark.long
def test_the_direct_child_dies_with_runner_supervisor_and_guardian(tmp_path: Path) -> None:
    """No process of ours is left to kill it. A process that left the session ends with the next
    supervisor where there are control groups; elsewhere docs/operations.md says that it goes on."""
    seen = tmp_path / "pids"
    shell = f"echo $$ >> {seen}; setsid sh -c 'echo $$ >> {seen}; exec sleep 600' & wait"
    with runner((["sh", "-c", shell], 0.3)) as (process, supervisor):
        wait_until(pids(seen, 2))
        child, left = map(int, numbers(seen))
        group = group_of(left)
        (guardian,) = children(supervisor)
        ours = (guardian, supervisor, process.pid)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in ours:
                os.kill(pid, number)
        wait_until(lambda: not any(map(alive, (*ours, child))))
    with runner():
        if group.startswith(f"{group_of(os.getpid()).rstrip('/')}/cronledger-"):
            wait_until(lambda: not alive(left))
        else:
            assert _home() is None
            os.kill(left, signal.SIGKILL)


async def test_a_command_has_a_control_group_where_there_can_be_one(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    home, ours = _home(), group_of(os.getpid()).rstrip("/")
    made = f"{ours}/cronledger-{supervisor_pid(supervisor)}"
    end = await run(supervisor, "grep ^0:: /proc/self/cgroup")
    group = end.output.strip().removeprefix("0::")
    again = await run(supervisor, "grep ^0:: /proc/self/cgroup; setsid sleep 600 &")
    if home is None:
        assert {end.output, again.output} == {f"0::{ours or '/'}\n"}
        return
    assert group == f"{made}/1"
    directory = Path(f"{home}/cronledger-{supervisor_pid(supervisor)}")
    assert [x.name for x in directory.iterdir() if x.is_dir()] == []
    await supervisor.close()
    assert not directory.exists()


@pytest.mark.parametrize(
    ("path", "root", "mount", "expected"),
    [
        ("/a.slice/b.service", "/", "/sys/fs/cgroup", "/sys/fs/cgroup/a.slice/b.service"),
        ("/docker/c1", "/docker/c1", "/sys/fs/cgroup", "/sys/fs/cgroup"),
        ("/docker/c1/d", "/docker/c1", "/cg", "/cg/d"),
        ("/docker/c10", "/docker/c1", "/cg", None),
        ("/../x", "/docker", "/cg", None),
    ],
)
def test_where_the_control_group_of_a_process_is(
    monkeypatch: pytest.MonkeyPatch, path: str, root: str, mount: str, expected: str | None
) -> None:
    files = {
        "/proc/self/cgroup": f"4:memory:/else\n0::{path}\n",
        "/proc/self/mountinfo": "31 1 0:9 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        f"41 31 0:38 {root} {mount} rw,relatime shared:9 - cgroup2 cgroup2 rw\n",
    }
    monkeypatch.setattr("builtins.open", lambda name: io.StringIO(files[name]))
    if expected is None:
        with pytest.raises(StopIteration):
            _own()
    else:
        assert _own() == (path, expected)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_runner_that_dies_or_stands_still_extends_no_lease(
    tmp_path: Path, number: signal.Signals
) -> None:
    stamps = tmp_path / "stamps"
    command = [*PYTHON, STAMPS, str(stamps)], GRACE if number == signal.SIGKILL else 0.3
    with runner(command, python=patient_python(tmp_path)) as (process, supervisor):
        wait_until(lambda: numbers(stamps))
        deadline = time.monotonic() + LEAD + 0.5
        extend_first(process, deadline)
        process.send_signal(number)
        wait_until(lambda: not alive(stamper(stamps)))
        assert time.monotonic() >= deadline - LEAD
        assert numbers(stamps)[-1] < deadline
        if number == signal.SIGSTOP:
            assert alive(supervisor)
            assert state(process.pid) == "T"


# -- the supervisor dies or stands still ------------------------------------------------------


async def test_kill_9_of_the_supervisor(supervisor: Supervisor, tmp_path: Path) -> None:
    seen = tmp_path / "pids"
    shell = f"sleep 600 & echo $! >> {seen}; echo $$ >> {seen}; wait"
    tasks = [asyncio.create_task(run(supervisor, shell, key=str(index))) for index in range(3)]
    await soon(pids(seen, 6))
    await soon(lambda: all(run.pid is not None for run in supervisor._runs.values()))
    first = supervisor_pid(supervisor)
    os.kill(first, signal.SIGKILL)
    for end in await asyncio.gather(*tasks):
        assert (end.returncode, end.signal, end.reason) == (None, None, "supervisor_died")
        assert end.error == "it ended with status -9"
    assert not any(alive(int(pid)) for pid in numbers(seen))
    assert (await run(supervisor, "exit 8")).returncode == 8
    second = supervisor_pid(supervisor)
    assert second != first
    os.kill(second, signal.SIGKILL)
    wait_until(lambda: not alive(second))  # in the loop's thread: the client has not read the end
    assert (await run(supervisor, "exit 8")).returncode == 8


def test_a_guardian_that_stood_still_kills_before_it_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signals: list[int] = []
    monkeypatch.setattr(guardian, "monotonic", partial(next, count(step=LAST)))
    monkeypatch.setattr(guardian._Guardian, "_anything_left", lambda _: True)
    monkeypatch.setattr(guardian._Guardian, "_signal", lambda _, number: signals.append(number))
    (control, supervisor), (_, report), (wake, _) = os.pipe(), os.pipe(), os.pipe()
    os.close(supervisor)
    guardian._Guardian(os.getpid(), control, report, wake, None).run()
    assert signals == [signal.SIGKILL]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_command_does_not_outlive_its_guardian(
    supervisor: Supervisor, tmp_path: Path, number: signal.Signals
) -> None:
    """SIGKILL: it ends at once. SIGSTOP: at the end of its lease. No daemon of others ends."""
    seen, other, left = tmp_path / "pids", tmp_path / "other", tmp_path / "left"
    shell = daemon(seen) + f"sh -c 'echo $PPID' >> {seen}; sleep 600 & echo $! >> {seen}; wait"
    task = asyncio.create_task(run(supervisor, shell, grace=0))
    others = asyncio.create_task(run(supervisor, daemon(other) + "sleep 600", key="other"))
    await soon(lambda: pids(seen, 3)() and pids(other, 1)())
    await soon(lambda: supervisor._runs["one"].pid is not None)
    shell_pid = supervisor._runs["one"].pid
    assert shell_pid is not None
    os.kill(parent(shell_pid), number)
    if number == signal.SIGSTOP:
        supervisor.extend({"one": time.monotonic() + 1})
    end = await asyncio.wait_for(task, 90)
    assert (end.returncode, end.signal) == (None, signal.SIGKILL)
    assert end.reason == ("guardian_died" if number == signal.SIGKILL else "lease")
    assert not any(alive(int(pid)) for pid in numbers(seen))
    assert alive(int(numbers(other)[0]))
    assert (await run(supervisor, f"touch {left}; exit 8")).returncode == 8
    supervisor.kill("other")
    assert (await others).reason == "stopped"
    assert not alive(int(numbers(other)[0]))


@pytest.mark.long
async def test_a_stuck_supervisor_is_killed_soon_after_the_deadline(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all its commands end with it."""
    monkeypatch.setattr(client, "STUCK_SECONDS", 0.3)
    stamps = tmp_path / "stamps"
    task = await stamping(supervisor, stamps)
    os.kill(supervisor_pid(supervisor), signal.SIGSTOP)
    overdue = asyncio.create_task(run(supervisor, "true", key="overdue", lease=0.5))
    for one in (overdue, task):
        assert (await asyncio.wait_for(one, 90)).reason == "supervisor_died"
    await soon(lambda: not alive(stamper(stamps)))


async def test_signals_to_everything_in_the_control_group_leave_the_supervisor(
    supervisor: Supervisor,
) -> None:
    pid = supervisor_pid(supervisor)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, number)
    assert (await run(supervisor, "exit 9")).returncode == 9
    assert supervisor_pid(supervisor) == pid
    assert os.getsid(pid) == pid  # a terminal's Ctrl-C does not reach it


async def test_close_ends_what_runs_and_is_idempotent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CLOSE_SECONDS", 90)
    supervisor = Supervisor()
    await supervisor.close()
    with pytest.raises(RuntimeError, match="closed"):
        await run(supervisor, "true")

    supervisor = Supervisor()
    stamps = tmp_path / "stamps"
    task = await stamping(supervisor, stamps, grace=0.1)  # starts the supervisor
    pid = supervisor_pid(supervisor)
    await asyncio.gather(supervisor.close(), supervisor.close())
    assert ((await task).signal, (await task).reason) == (signal.SIGKILL, "eof")
    assert not alive(pid)
    supervisor.extend({"one": 0.0})
    supervisor.stop("one")
    with pytest.raises(RuntimeError, match="closed"):
        await supervisor.start()


async def test_a_supervisor_that_cannot_start_is_an_error_of_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    supervisor = Supervisor()
    with pytest.raises(RuntimeError, match="exited with status 1 at startup"):
        await supervisor.start()
    end = await run(supervisor, "true")
    assert end.reason == "not_started"
    assert end.error == "the command supervisor exited with status 1 at startup"
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    end = await run(supervisor, "true")
    assert end.error is not None
    assert "cannot start the command supervisor: [Errno 2]" in end.error
    await supervisor.close()


def test_the_supervisor_imports_little() -> None:
    code = "import sys, cronledger.engine.commands.supervisor; print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True
    ).stdout
    heavy = {"asyncio", "dataclasses", "threading", "subprocess", "logging", "inspect", "pathlib"}
    assert not heavy & set(output.split())
    packages = {"cronledger", "cronledger.engine", "cronledger.engine.commands"}
    modules = ("cgroup", "guardian", "progress_lines", "spawn", "supervised", "supervisor")
    assert {name for name in output.split() if name.startswith("cronledger")} == packages | {
        f"cronledger.engine.commands.{name}" for name in modules
    }

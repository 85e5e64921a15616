"""One call of the command line in a process of its own, and what is wrong with how it ended."""

import faulthandler
import io
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from cronledger.cli import main
from cronledger.rules.problems import Exit
from tests.fuzz.world import PASSWORD, TOKEN, World

PATIENCE_SECONDS = 90.0
"""A call that has not ended by then hangs. Most end within a second, also on a busy machine."""
INTERRUPTED_AFTER_SECONDS = 2.0
"""A call that is meant to wait is interrupted after this."""
MEMORY_BYTES = 3 * 1024**3
"""A call that reads without end fails by this, before the machine does."""
KNOWN_CODES = frozenset(Exit)
STDOUTS = ("file", "full", "closed")


@dataclass(frozen=True, slots=True)
class Call:
    """`environ` is the whole environment. `waits`: the call may wait until it is interrupted.

    `may`: exit codes that would be a finding for another call: SCHEMA and UNREACHABLE.
    """

    arguments: Sequence[str]
    environ: Mapping[str, str]
    cwd: Path
    stdin: Path
    stdout: str = "file"
    encoding: str = "utf-8"
    waits: bool = False
    may: frozenset[Exit] = frozenset()

    def __str__(self) -> str:
        shown = [x if len(x) <= 200 else f"{x[:200]}…({len(x)})" for x in self.arguments]
        rest = {name: value for name, value in self.environ.items() if "DATABASE_URL" not in name}
        return ascii((shown, rest, str(self.cwd.name), str(self.stdin.name), self.stdout))


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that no call may do."""

    what: str
    call: Call
    output: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended: its exit code, or minus the signal that ended it."""

    code: int
    findings: list[Finding] = field(default_factory=list)


def run(call: Call, world: World) -> Ended:
    """Run `call` to its end and return what is wrong with it."""
    out, err = world.scratch / "stdout", world.scratch / "stderr"
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _child(call, out, err)
    status, hung = _wait(pid, call)
    code = os.waitstatus_to_exitcode(status)
    output = (err.read_bytes() + out.read_bytes()).decode("utf-8", "backslashreplace")
    return Ended(code, [Finding(what, call, output) for what in _wrong(call, code, hung, output)])


def _wrong(call: Call, code: int, hung: bool, output: str) -> list[str]:
    found = []
    if hung:
        found.append(f"did not end within {PATIENCE_SECONDS:g} s")
    elif code not in KNOWN_CODES and not _is_of_a_command(call, code):
        found.append(f"exit code {code}")
    elif code in (Exit.SCHEMA, Exit.UNREACHABLE) and Exit(code) not in call.may:
        found.append(f"exit code {code} although the database is there and up to date")
    ours = output if "/fuzzed_" not in output else ""  # an App's own is meant to be shown
    if "Traceback (most recent call last)" in ours or "Exception ignored" in ours:
        found.append("a traceback")
    if PASSWORD in output or "sy/ll%" in output:
        found.append("the password of the DSN")
    if TOKEN in output:
        found.append("a lease_token")
    return found


def _is_of_a_command(call: Call, code: int) -> bool:
    """Return whether `observe` ended with the code of its command, which the host may not have."""
    return call.arguments[:1] == ["observe"] and "--" in call.arguments and code in (126, 127)


def _wait(pid: int, call: Call) -> tuple[int, bool]:
    began = time.monotonic()
    interrupted = False
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status, False
        waited = time.monotonic() - began
        if call.waits and not interrupted and waited > INTERRUPTED_AFTER_SECONDS:
            os.kill(pid, signal.SIGINT)
            interrupted = True
        if waited > PATIENCE_SECONDS:
            os.kill(pid, signal.SIGABRT)  # faulthandler prints where it is
            _, status = os.waitpid(pid, 0)
            return status, True
        time.sleep(0.002)


def _child(call: Call, out: Path, err: Path) -> NoReturn:
    """Become the process that the shell would start."""
    code: object = 70
    try:
        _redirect(call, out, err)
        faulthandler.enable(file=2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.chdir(call.cwd)
        if call.cwd.name == "deleted":
            call.cwd.rmdir()
        os.environ.clear()
        os.environ.update(call.environ)
        sys.argv = ["cronledger", *call.arguments]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            main(args=list(call.arguments), prog_name="cronledger")
        except SystemExit as ended:
            code = 0 if ended.code is None else ended.code
        if not isinstance(code, int):
            code = 1
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - the parent judges what is printed
        os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
        code = 1
    finally:
        os._exit(int(str(code)) & 0xFF)


def _redirect(call: Call, out: Path, err: Path) -> None:
    os.dup2(os.open(call.stdin, os.O_RDONLY), 0)
    os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    match call.stdout:
        case "full":
            out.write_bytes(b"")
            os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        case "closed":
            out.write_bytes(b"")
            reader, writer = os.pipe()
            os.dup2(writer, 1)
            os.close(writer)
            os.close(reader)
        case _:
            os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.closerange(3, 64)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    for number, name in ((1, "stdout"), (2, "stderr")):
        raw = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
        errors = "strict" if number == 1 else "backslashreplace"
        setattr(sys, name, io.TextIOWrapper(raw, call.encoding, errors, line_buffering=number == 2))

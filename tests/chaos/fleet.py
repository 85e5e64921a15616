"""The replicas and the foreign worker: started, killed, stopped, deployed, and kept running."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.jobs import DIRECTORY
from tests.cluster.support.harness import ROOT
from tests.cluster.support.hosts import Host
from tests.cluster.support.marks import VARIABLE
from tests.processes import clean_environ
from tests.waiting import until

PATIENCE = 90.0
ROUTINE = (
    "execution_", "lease_", "partitions_", "scopes_", "slots_", "pause_ended",
    "job_without_runner",
)  # fmt: skip


@dataclass
class Member:
    """One place in the fleet: whoever runs in it, one process after the other, writes one log.
    `host`: None is that of everybody else.
    """

    name: str
    argv: list[str]
    environ: Mapping[str, str]
    log: Path
    host: Host | None = None
    popen: subprocess.Popen[bytes] | None = None
    expected: bool = False
    pids: list[int] = field(default_factory=list)
    begun_at: int = 0

    def start(self) -> None:
        there = nullcontext() if self.host is None else self.host.inside()
        with there, self.log.open("ab") as file:
            self.begun_at = file.tell()
            self.popen = subprocess.Popen(
                self.argv, cwd=ROOT, env={**clean_environ(), **self.environ}, stdout=file,
                stderr=file, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.pids.append(self.popen.pid)
        self.expected = False

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self.popen is not None, f"{self.name} was not started"
        return self.popen

    @property
    def has_started(self) -> bool:
        """Whether the process that is in this place got as far as running."""
        return any(e["event"] == "runner_started" for e in self.lines(self.begun_at))

    def lines(self, since: int = 0) -> list[dict[str, Any]]:
        """Events logged after the byte `since`."""
        with self.log.open("rb") as file:
            file.seek(since)
            text = file.read().decode("utf-8", "replace")
        events = []
        for line in text.splitlines():
            try:
                events.append(dict(json.loads(line)))
            except ValueError:
                events.append({"event": "(no JSON)", "line": line})
        return events


class Fleet:
    """All members. A process that ended without being told to is written down in `deaths`, one that
    could not start (the database was out of order again) in `false_starts`, one that could not
    write what it had left, for the same reason, in `cut_short`."""

    def __init__(self, directory: Path, marks: Path, drain_timeout: str = "8s") -> None:
        self._directory = directory
        self._marks = marks
        self._drain_timeout = drain_timeout
        self.members: dict[str, Member] = {}
        self.deaths: list[str] = []
        self.false_starts: Counter[str] = Counter()
        self.cut_short: Counter[str] = Counter()
        self.deploy = 1
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)

    def replica(self, name: str, dsn: str, **environ: str) -> Member:
        """A member that runs the App of the current deploy; it is not started."""
        values = {
            "CRONLEDGER_DATABASE_URL": dsn, "CRONLEDGER_LOG_FORMAT": "json",
            "CRONLEDGER_DRAIN_TIMEOUT": self._drain_timeout,
            "CRONLEDGER_ALLOW_SQL_COMMANDS": "1", "CRONLEDGER_TRACING": "1",
            VARIABLE: str(self._marks), DIRECTORY: str(self._directory), **environ,
        }  # fmt: skip
        return self._add(Member(name, self._argv(), values, self._directory / f"{name}.log"))

    def _argv(self) -> list[str]:
        app = ("second", "first")[self.deploy % 2]
        command = str(Path(sys.executable).parent / "cronledger")
        return [
            command, "run", f"tests.chaos.jobs:{app}", "--source", "chaos", "--deploy",
            str(self.deploy), "--slots", "16", "--no-migrate", "--wait", "10m",
            "--queue", "default", "--queue", "sql", "--queue", "foreign",
        ]  # fmt: skip

    def worker(self, name: str, dsn: str, programs: Path) -> Member:
        """A member in bash; psql is that of the PATH, else that of `programs`."""
        values = {
            "CRONLEDGER_DATABASE_URL": dsn, "WORKER_NAME": name, "POLL": "0.5",
            "PATH": f"{os.environ['PATH']}:{programs}",
        }  # fmt: skip
        argv = ["examples/worker.sh", "foreign", "sh", "-c", "cat > /dev/null; sleep 0.3"]
        return self._add(Member(name, argv, values, self._directory / f"{name}.log"))

    def _add(self, member: Member) -> Member:
        self.members[member.name] = member
        return member

    def keep(self) -> None:
        """Whoever ended is started again."""
        with self._lock:
            for member in self.members.values():
                if member.popen is None or member.expected or member.popen.poll() is None:
                    continue
                code = member.popen.returncode
                is_worker = "WORKER_NAME" in member.environ
                if code in (1, 3) and not is_worker and not member.has_started:
                    self.false_starts[f"exit status {code}"] += 1
                    time.sleep(0.5)
                else:
                    self.deaths.append(f"{member.name} ended by itself: exit status {code}")
                self._start(member)

    def _start(self, member: Member) -> None:
        if "WORKER_NAME" in member.environ:
            # A worker's name is taken while its row lives.
            name = f"{member.name}-{next(self._numbers)}"
            member.environ = {**member.environ, "WORKER_NAME": name}
        member.start()

    def start(self, *members: Member) -> None:
        with self._lock:
            for member in members:
                self._start(member)

    def kill(self, member: Member) -> None:
        """kill -9, and another one in its place."""
        with self._lock:
            member.expected = True
            member.process.kill()
            member.process.wait()
            self._start(member)

    def freeze(self, member: Member, seconds: float) -> None:
        """SIGSTOP, SIGCONT after `seconds`."""
        pid = member.process.pid
        with suppress(ProcessLookupError):  # it may be ending, and have a successor
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)

    def drain(self, member: Member) -> int:
        """SIGTERM, its end, and another one of the current deploy in its place; its status."""
        with self._lock:
            member.expected = True
            is_ready = member.has_started  # before that, SIGTERM is the end
            asked_at = member.log.stat().st_size
            member.process.terminate()
        until(f"{member.name} has drained", lambda: member.process.poll() is not None, PATIENCE)
        code = member.process.returncode
        with self._lock:
            if "WORKER_NAME" not in member.environ:
                member.argv = self._argv()
            if code == 1 and is_ready and _was_away(member.lines(asked_at)):
                self.cut_short[f"exit status {code}"] += 1
            elif code != 0 and is_ready:
                self.deaths.append(f"{member.name} drained with exit status {code}")
            self._start(member)
        return code

    def end(self) -> list[str]:
        """Everybody was told to drain and has ended; who did not do it well."""
        bad = []
        members = [x for x in self.members.values() if x.popen is not None]
        for member in members:
            member.expected = True
            member.process.terminate()
        for member in members:
            try:
                code = member.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                member.process.kill()
                code = member.process.wait()
            if code != 0:
                bad.append(f"{member.name} ended with exit status {code}")
        return bad

    def close(self) -> None:
        """Nobody is left."""
        for member in self.members.values():
            if member.popen is not None and member.popen.poll() is None:
                with suppress(ProcessLookupError):
                    os.kill(member.popen.pid, signal.SIGCONT)
                member.popen.kill()
                member.popen.wait()


def trouble(events: list[dict[str, Any]]) -> list[str]:
    """Names of the events that are not about one execution."""
    return [str(e["event"]) for e in events if not str(e["event"]).startswith(ROUTINE)]


def _was_away(lines: list[dict[str, Any]]) -> bool:
    """Whether the member was without its database: its process ends in time, whatever hangs."""
    return any(line["event"] in ("database_unreachable", "heartbeats_failed") for line in lines)

"""Replicas as processes, the lines they leave, and the ledger they share."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, LiteralString

import psycopg

from cronledger.ledger.migrate import migrate
from tests.cluster.support.clocks import monotonic_offset
from tests.cluster.support.marks import VARIABLE, Mark, read
from tests.processes import CRONLEDGER, alive, clean_environ
from tests.waiting import PATIENCE, until

ROOT = Path(__file__).parents[3]


RUNNER = (sys.executable, "-m", "tests.cluster.support.runner")


class Process:
    """One replica, or a server with several. Its log is a list of events."""

    def __init__(self, argv: Sequence[str], log: Path, environ: Mapping[str, str]) -> None:
        self._log = log
        with log.open("wb") as file:
            self.popen = subprocess.Popen(
                argv, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.popen.pid

    def text(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        found = []
        for line in self.text().splitlines():
            with suppress(ValueError):
                event = json.loads(line)
                if name is None or event["event"] == name:
                    found.append(event)
        return found

    def event(self, name: str, seconds: float = PATIENCE) -> dict[str, Any]:
        """The first event of that name, once there is one."""

        def look() -> dict[str, Any] | None:
            # Before the log is read: a process that has ended may have written the event.
            ended = self.popen.poll()
            found = next(iter(self.events(name)), None)
            assert found or ended in (None, -signal.SIGKILL), self.text()
            return found

        return until(f"{name} in the log of {self.pid}", look, seconds)

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        """It is dead, by SIGKILL."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.popen.wait()

    def wait(self, seconds: float = PATIENCE) -> int:
        """Its exit status, once it has ended by itself."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.pid} did not end:\n{self.text()}") from None


class Cluster:
    """The replicas of one test on one database; `close` leaves no process behind."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self._directory = directory
        self._marks = directory / "marks"
        self._processes: list[Process] = []
        self._connection = psycopg.connect(url, autocommit=True)

    def reconnect(self) -> None:
        """The view on the ledger is a new connection: the server was away."""
        self._connection.close()
        self._connection = psycopg.connect(self.url, autocommit=True)

    def start(
        self,
        app: str,
        *,
        url: str | None = None,
        wait: bool = True,
        environ: Mapping[str, str] = MappingProxyType({}),
        **settings: Any,
    ) -> Process:
        """A replica that runs `app` of `tests.cluster.support.jobs`; `wait`: it has started."""
        arguments = [url or self.url, f"tests.cluster.support.jobs:{app}", json.dumps(settings)]
        process = self.begin([*RUNNER, *arguments], environ)
        if wait:
            process.event("runner_started")
        return process

    def serve(self, *options: str, **variables: str) -> Process:
        """Return a uvicorn that serves `tests.cluster.support.web:api` on a free port."""
        program = (sys.executable, "-m", "uvicorn", "tests.cluster.support.web:api")
        environ = {"CRONLEDGER_DATABASE_URL": self.url, **variables}
        return self.begin([*program, "--port", "0", *options], environ)

    def begin(self, argv: Sequence[str], environ: Mapping[str, str]) -> Process:
        log = self._directory / f"replica-{len(self._processes)}.log"
        process = Process(argv, log, {**clean_environ(), VARIABLE: str(self._marks), **environ})
        self._processes.append(process)
        return process

    def trigger(self, *jobs: str) -> None:
        """Every (job, scope) of `jobs` has one PENDING execution more."""
        self.rows(
            "SELECT cronledger.trigger(job_name, scope_kind, scope_id) FROM cronledger.schedules"
            " WHERE job_name = ANY (%s) ORDER BY 1",
            list(jobs),
        )

    def rows(self, statement: LiteralString, *values: object) -> list[Any]:
        """Rows; a row of one column as its value."""
        found = self._connection.execute(statement, values or None)
        return [row[0] if len(row) == 1 else row for row in found.fetchall()]

    def executions(self, status: str | None = None) -> list[Any]:
        """Executions as dictionaries, by plan_time, and in the same order each time."""
        return self.rows(
            "SELECT to_jsonb(e) FROM cronledger.executions e"
            " WHERE %s::text IS NULL OR status = %s ORDER BY plan_time, id",
            status, status,
        )  # fmt: skip

    def runners(self) -> set[str]:
        """Return the runners that have run something to its end."""
        return {row["runner_id"] for row in self.executions("SUCCESS")}

    def execution(self, job: str) -> dict[str, Any]:
        """The only execution of a job."""
        (found,) = [row for row in self.executions() if row["job_name"] == job]
        return dict(found)

    def marks(self, what: str | None = None) -> list[Mark]:
        if not self._marks.exists():
            return []
        return [m for m in read(self._marks.read_text()) if what is None or m.what == what]

    def clock_offset(self) -> float:
        """See `monotonic_offset`."""
        return monotonic_offset(self._connection)

    def drain(self) -> None:
        """Every replica was told to end, and did so well."""
        for process in self._processes:
            process.popen.terminate()
        for process in self._processes:
            assert process.wait() == 0, process.text()

    def close(self) -> None:
        """End what is left, and print the logs, which pytest shows if the test has failed."""
        for process in self._processes:
            process.kill()
            print(f"--- {process.pid}\n{process.text()}")
        self._connection.close()
        pids = {mark.pid for mark in self.marks()}
        for pid in pids:  # their supervisors end them; no test may leave one
            until(f"{pid} has ended", lambda pid=pid: not alive(pid))  # type: ignore[misc]


@contextmanager
def cluster_on(url: str, directory: Path, *, migrated: bool = True) -> Iterator[Cluster]:
    """Yield the replicas of a block, which begins with migrations unless `migrated`."""
    if not migrated:
        migrate(url)
    with closing(Cluster(url, directory)) as made:
        yield made


def cronledger(url: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `cronledger` in a directory, to its end."""
    return subprocess.run(
        [*CRONLEDGER, *arguments],
        cwd=directory, env={**clean_environ(), "CRONLEDGER_DATABASE_URL": url},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


def instant(text: str) -> float:
    """Seconds since 1970 of a timestamp as the ledger's JSON has it."""
    return datetime.fromisoformat(text).timestamp()

"""A worker that is no Python, `examples/worker.sh`, goes through what a replica goes through."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cronledger.embedded.server import find_binaries
from tests.cluster.support.harness import ROOT, Cluster
from tests.database import chosen_binaries
from tests.db.support import rows
from tests.processes import alive, children
from tests.waiting import until

LEASE = "6 s"  # a third of it later, the keeper of a killed worker ends its work
LONG = ("sh", "-c", 'echo $$ >> "$MARKS"; [ "$ATTEMPT" -gt 1 ] || exec sleep 60')


class Worker:
    """examples/worker.sh as a process of its own, and the pids that its work wrote."""

    def __init__(self, url: str, directory: Path, name: str, command: Sequence[str]) -> None:
        self._log, self._marks = directory / f"{name}.log", directory / f"{name}.pids"
        programs = find_binaries(chosen_binaries()).directory  # with psql
        environ = {
            **os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "WORKER_NAME": name,
            "CRONLEDGER_DATABASE_URL": url, "MARKS": str(self._marks), "POLL": "0.1",
        }  # fmt: skip
        with self._log.open("wb") as file:
            self.popen = subprocess.Popen(
                [str(ROOT / "examples/worker.sh"), "default", *command], env=environ,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def pids(self) -> list[int]:
        """Of the work it started, in order."""
        return [int(x) for x in self._marks.read_text().split()] if self._marks.exists() else []

    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()


@pytest.fixture
def workers(cluster: Cluster, tmp_path: Path) -> Iterator[Any]:
    """Starts workers; none of them, nor of their work, is left behind."""
    made: list[Worker] = []

    def start(name: str, *command: str) -> Worker:
        made.append(Worker(cluster.url, tmp_path, name, command))
        return made[-1]

    yield start
    for worker in made:
        worker.kill()
        print(worker.log())
    for worker in made:
        for pid in worker.pids():
            # The keeper of a killed worker ends its work at its next beat.
            until(f"{pid} has ended", lambda pid=pid: not alive(pid), 40)  # type: ignore[misc]


def _declare(cluster: Cluster, name: str = "foreign", **columns: object) -> None:
    values = {"handler": "external", "schedule": None, "stale_timeout": LEASE, **columns}
    with rows.connected(cluster.url) as db:
        rows.job(db, name, **values)


def _begun(worker: Worker) -> int:
    return until("the work runs", worker.pids)[-1]


@pytest.mark.long
def test_firings_reach_a_worker_in_bash(cluster: Cluster, workers: Any) -> None:
    _declare(cluster, schedule="@every 1s", grace="1 h", payload='{"n": 7}')
    cluster.start("control")
    worker = workers("bash", "sh", "-c", 'cat; echo " for $JOB"')
    ended = (
        "SELECT runner_id, result FROM cronledger.executions"
        " WHERE (job_name, status) = ('foreign', 'SUCCESS')"
    )
    until("three have ended", lambda: len(cluster.rows(ended)) >= 3)
    assert cluster.rows(ended)[:3] == [("bash", '{"n": 7}\n for foreign')] * 3
    worker.popen.send_signal(signal.SIGTERM)
    assert worker.popen.wait(90) == 0


@pytest.mark.slow
def test_a_command_that_fails_says_so_and_is_retried(cluster: Cluster, workers: Any) -> None:
    _declare(cluster, max_attempts=2, retry_backoff=["0 s"])
    cluster.trigger("foreign")
    workers("bash", "sh", "-c", 'echo "it\'s" broken >&2; exit 3')
    row = until(
        "it failed for good",
        lambda: next((r for r in cluster.executions("FAILED") if r["attempt"] == 2), None),
    )
    assert row["error_code"] == "exit_code"
    assert row["error_msg"] == "exit status 3: it's broken"
    assert [entry["error_code"] for entry in row["attempts"]] == ["exit_code"]


@pytest.mark.long
def test_a_worker_whose_lease_was_stolen_writes_nothing(cluster: Cluster, workers: Any) -> None:
    """It is stopped for longer than its lease; when it goes on, its end does not count."""
    _declare(cluster, allow_stale_reentry=True)
    cluster.trigger("foreign")
    old = workers("old", *LONG)
    work = _begun(old)
    # The worker starts its keeper after the work.
    (keeper,) = until(
        "its keeper runs", lambda: [pid for pid in children(old.popen.pid) if not _leads(pid, work)]
    )
    for pid in (old.popen.pid, keeper):
        os.kill(pid, signal.SIGSTOP)
    workers("thief", *LONG)
    until("stolen", lambda: cluster.execution("foreign")["status"] == "SUCCESS")
    row = cluster.execution("foreign")
    for pid in (keeper, old.popen.pid):
        os.kill(pid, signal.SIGCONT)
    until("the old one knows", lambda: "lost" in old.log())
    assert not alive(work)
    assert cluster.execution("foreign") == row
    assert (row["runner_id"], row["attempt"]) == ("thief", 2)


def _leads(pid: int, work: int) -> bool:
    """Whether `pid` is the work's own process or that of its `timeout`."""
    return pid == work or work in children(pid)

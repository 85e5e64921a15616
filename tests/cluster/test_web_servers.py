"""F50: replicas in the processes of a real web server."""

import re
import signal
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from cronledger.audit.verify import verify
from tests.cluster.support.harness import Cluster, Process, instant
from tests.cluster.support.outside_record import assert_accounted_for
from tests.cluster.support.web import GATE
from tests.marks import first_fast
from tests.waiting import until

WORKERS = 4


def started(cluster: Cluster, workers: int, **variables: str) -> Process:
    """Return a uvicorn whose workers all have a replica."""
    # By default uvicorn kills a worker that does not respond for 5 s, and starts another one.
    patience = ("--timeout-worker-healthcheck", "90")
    server = cluster.serve("--workers", str(workers), *patience, **variables)
    until("all workers run", lambda: len(server.events("runner_started")) == workers)
    return server


def address(server: Process) -> str:
    """Return the address at which the server accepts requests."""
    found = until("it listens", lambda: re.search(r"running on (http://\S+)", server.text()))
    return found[1]


def requested(url: str) -> dict[str, str]:
    found: dict[str, str] = httpx2.get(url, timeout=60).raise_for_status().json()
    return found


def assert_each_second_ran_once(cluster: Cluster) -> None:
    """I1, I2, by the ledger and by what the handlers wrote outside of it."""
    assert_accounted_for(cluster)
    rows = [row for row in cluster.executions() if row["job_name"] == "each_second"]
    ran = Counter(instant(m.plan_time) for m in cluster.marks("start") if m.job == "each_second")
    assert ran == Counter(instant(row["plan_time"]) for row in rows)
    assert set(ran.values()) == {1}
    assert {(row["status"], row["attempt"]) for row in rows} == {("SUCCESS", 1)}
    assert [str(violation) for violation in verify(cluster.url)] == []


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_four_workers_run_every_plan_time_once(cluster: Cluster, tmp_path: Path, loop: str) -> None:
    gate = tmp_path / "gate"
    server = started(cluster, WORKERS, UVICORN_LOOP=loop, **{GATE: str(gate)})
    answer = requested(address(server))
    assert answer["runner"] in {event["runner"] for event in server.events("runner_started")}
    assert answer["state"] == "running"
    before = len(cluster.executions("SUCCESS"))
    until("plan_times run", lambda: len(cluster.executions("SUCCESS")) >= before + 5)
    cluster.trigger("gated")
    until("one waits", lambda: [m for m in cluster.marks("alive") if m.job == "gated"])
    server.signal(signal.SIGTERM)
    until("all drain", lambda: len(server.events("runner_draining")) == WORKERS)
    gate.touch()
    assert server.wait() == 0
    assert cluster.execution("gated")["status"] == "SUCCESS"
    assert len(server.events("runner_stopped")) == WORKERS
    assert cluster.rows("SELECT DISTINCT state, running FROM cronledger.runners") == [
        ("stopped", 0)
    ]
    assert server.events("step_failed") == []
    assert_each_second_ran_once(cluster)


@pytest.mark.parametrize("workers", first_fast([1, WORKERS]))
def test_what_does_not_end_in_time_is_released_or_fails(cluster: Cluster, workers: int) -> None:
    server = started(cluster, workers, CRONLEDGER_DRAIN_TIMEOUT="0s")
    cluster.trigger("long_again", "long_once")
    until("both run", lambda: len({m.job for m in cluster.marks("alive")}) == 2)
    server.signal(signal.SIGTERM)
    # A server of one process ends by the signal that it has received.
    assert server.wait() in (0, -signal.SIGTERM)
    assert cluster.executions("RUNNING") == []
    released = cluster.execution("long_again")["status"]
    # A process that has not received its signal yet may claim it again.
    assert released == "PENDING" or (workers > 1 and released == "SUCCESS")
    row = cluster.execution("long_once")
    assert (row["status"], row["error_code"]) == ("FAILED", "shutdown")
    assert [str(violation) for violation in verify(cluster.url)] == []


@pytest.mark.parametrize("workers", first_fast([1, WORKERS]))
def test_a_start_that_fails_ends_the_server(
    empty_database_url: str, tmp_path: Path, workers: int
) -> None:
    cluster = Cluster(empty_database_url, tmp_path)
    try:
        server = cluster.serve("--workers", str(workers))
        assert server.wait() == (3 if workers == 1 else 0)
        assert "has no ledger" in server.text()
        assert "run `cronledger migrate`" in server.text()
        assert "Application startup failed. Exiting." in server.text()
    finally:
        cluster.close()
        print(cluster.report())

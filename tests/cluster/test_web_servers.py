"""F50: replicas in the processes of a real web server."""

import re
import signal
from pathlib import Path

import httpx2
import pytest

from cronledger.audit.verify import verify
from tests.cluster.support.harness import Cluster
from tests.cluster.support.jobs import GATE
from tests.cluster.support.outside_record import assert_every_plan_time_ran_once
from tests.waiting import until

WORKERS = 4


@pytest.mark.slow
def test_four_workers_with_uvloop_run_every_plan_time_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    # By default uvicorn kills a worker that does not respond for 5 s, and starts another one.
    options = ("--workers", str(WORKERS), "--timeout-worker-healthcheck", "90")
    server = cluster.serve(*options, UVICORN_LOOP="uvloop", **{GATE: str(gate)})
    until("all workers run", lambda: len(server.events("runner_started")) == WORKERS)
    found = until("it listens", lambda: re.search(r"running on (http://\S+)", server.text()))
    answer = httpx2.get(found[1], timeout=60).raise_for_status().json()
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
    assert_every_plan_time_ran_once(cluster)
    assert [str(violation) for violation in verify(cluster.url)] == []

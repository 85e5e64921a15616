"""SIGTERM: running work ends, the rest is released or fails, and the process is gone."""

from typing import LiteralString

import pytest

from tests.cluster.support.harness import Cluster
from tests.processes import alive
from tests.waiting import until


def _running(cluster: Cluster, *jobs: str) -> None:
    until(f"{jobs} run", lambda: {m.job for m in cluster.marks("alive")} >= set(jobs))


def test_running_work_ends_before_the_replica_does(cluster: Cluster) -> None:
    replica = cluster.start("drained")
    cluster.trigger("short")
    _running(cluster, "short")
    replica.popen.terminate()
    # This is published after the last claim. On a busy machine the work has ended as well by then.
    state: LiteralString = "SELECT state FROM cronledger.runners"
    until("it drains", lambda: cluster.rows(state) in (["draining"], ["stopped"]))
    cluster.trigger("long_once")
    assert replica.wait() == 0
    assert cluster.execution("short")["status"] == "SUCCESS"
    assert cluster.execution("long_once")["status"] == "PENDING"
    assert cluster.rows("SELECT state, running FROM cronledger.runners") == [("stopped", 0)]
    assert replica.events("drain_deadline_passed") == []


@pytest.mark.slow
def test_what_does_not_end_in_time_is_released_or_fails_for_good(cluster: Cluster) -> None:
    """One drain with every kind of work; the leases are long, so nothing waits for their end."""
    jobs = ("long_again", "long_once", "long_command", "long_command_once", "deaf_thread")
    # A command has 5 s to end, and all handlers have `grace`: enough for a busy machine to kill it.
    first = cluster.start("drained", runner_id="first", drain_timeout="0s", grace=15.0)
    cluster.trigger(*jobs)
    _running(cluster, *jobs)
    old = {m.pid for m in cluster.marks() if "command" in m.job}
    first.popen.terminate()
    assert first.wait() == 0
    assert not any(map(alive, old))
    lives = [m.at for m in cluster.marks()]
    for job in ("long_again", "long_command"):
        row = cluster.execution(job)
        assert (row["status"], row["attempt"], row["max_attempts"]) == ("PENDING", 1, 2)
        assert (row["lease_token"], row["runner_id"]) == (None, None)
        (before,) = row["attempts"]
        assert (before["error_code"], before["runner_id"]) == ("shutdown", "first")
    for job in ("long_once", "long_command_once", "deaf_thread"):
        row = cluster.execution(job)
        assert (row["status"], row["error_code"]) == ("FAILED", "shutdown")
        assert (row["attempt"], row["next_attempt_at"]) == (1, None)
        assert ("its end is unknown" in row["error_msg"]) is (job == "deaf_thread")
    assert len(first.events("handler_not_stopped")) == 1
    assert cluster.rows("SELECT state FROM cronledger.runners") == ["stopped"]

    cluster.start("drained", runner_id="second")
    until("released, run again", lambda: len(cluster.executions("SUCCESS")) == 2)
    for job in ("long_again", "long_command"):
        row = cluster.execution(job)
        assert (row["status"], row["attempt"], row["runner_id"]) == ("SUCCESS", 2, "second")
    starts = [m for m in cluster.marks("start") if m.attempt == 2]
    assert min(m.at for m in starts) > max(lives)
    assert {row["attempt"] for row in cluster.executions("FAILED")} == {1}


def test_a_second_signal_ends_the_wait(cluster: Cluster) -> None:
    replica = cluster.start("drained", drain_timeout="10m")
    cluster.trigger("long_again", "long_once")
    _running(cluster, "long_again", "long_once")
    replica.popen.terminate()
    replica.event("runner_draining")
    assert replica.popen.poll() is None
    replica.popen.terminate()
    assert replica.wait() == 0
    assert cluster.execution("long_again")["status"] == "PENDING"
    assert cluster.execution("long_once")["error_code"] == "shutdown"

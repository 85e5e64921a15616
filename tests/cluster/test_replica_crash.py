"""A replica that dies, or stops, in the middle of its work."""

import signal

import pytest

from tests.cluster.support.harness import Cluster, instant
from tests.cluster.support.jobs import LEASE_VARIABLE
from tests.marks import first_fast
from tests.processes import alive
from tests.waiting import until

pytestmark = pytest.mark.long

LEASES = {LEASE_VARIABLE: "12s"}
"""A busy machine loses shorter ones before the replica dies."""
JOBS = ("async", "thread", "command")
AGAIN = tuple(f"{kind}_again" for kind in JOBS)
ONCE = tuple(f"{kind}_once" for kind in JOBS)


@pytest.mark.parametrize("how", first_fast([signal.SIGKILL, signal.SIGSTOP]))
def test_reentrant_work_is_stolen_and_other_work_never_starts_again(
    cluster: Cluster, how: signal.Signals
) -> None:
    """I3, I5, I6; and no command outlives its lease."""
    first = cluster.start("crash", runner_id="first", environ=LEASES)
    cluster.trigger(*AGAIN, *ONCE)
    until("all run", lambda: len({m.job for m in cluster.marks("alive")}) == 6)
    second = cluster.start("crash", runner_id="second", environ=LEASES)
    until(
        "heartbeats of all",
        lambda: all(row["heartbeat_at"] > row["started_at"] for row in cluster.executions()),
    )
    first.signal(how)
    until("all have ended", lambda: not cluster.executions("RUNNING"))
    offset = cluster.clock_offset()
    old = [m for m in cluster.marks() if m.attempt == 1]
    for job in AGAIN:
        row = cluster.execution(job)
        assert (row["status"], row["attempt"], row["runner_id"]) == ("SUCCESS", 2, "second")
        (before,) = row["attempts"]
        assert before["error_code"] == "runner_crashed"
        assert before["runner_id"] == "first"
        assert instant(before["started_at"]) < instant(before["last_seen"])
        assert instant(before["last_seen"]) < instant(row["started_at"])
        end = max(m.at for m in old if m.job == job)
        assert end < instant(row["started_at"]) + offset
    for job in ONCE:
        row = cluster.execution(job)
        assert (row["status"], row["error_code"]) == ("FAILED", "stale_timeout")
        assert (row["attempt"], row["max_attempts"], row["next_attempt_at"]) == (1, 3, None)
        assert "first" in row["error_msg"]
    for pid in {m.pid for m in old if m.job.startswith("command")}:
        assert not alive(pid)
    for job in ("command_again", "command_once"):
        row = cluster.execution(job)
        lease_end = row["stale_after"] if job in ONCE else row["started_at"]
        assert max(m.at for m in old if m.job == job) < instant(lease_end) + offset
    if how is signal.SIGSTOP:
        first.signal(signal.SIGCONT)
        until("it knows what it lost", lambda: len(first.events("lease_lost")) == 6)
        until("it runs nothing", lambda: "first" not in _busy(cluster))
    # Whatever came later: nothing of it counts, and what failed for good stays as it is.
    cluster.trigger("probe")
    until("a later claim has been made", lambda: cluster.execution("probe")["status"] == "SUCCESS")
    assert {row["attempt"] for row in cluster.executions("FAILED")} == {1}
    assert second.events("step_failed") == []
    assert first.events("step_failed") == []


def _busy(cluster: Cluster) -> list[str]:
    return cluster.rows("SELECT id FROM cronledger.runners WHERE running > 0")

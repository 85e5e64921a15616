"""The server or the network fails for a while. `tests.chaos` causes more kinds of faults."""

from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.support.harness import Cluster
from tests.cluster.support.jobs import GATE
from tests.cluster.support.proxy import Proxy
from tests.waiting import until

REPEATED_LINES = 6


def _goes_on(cluster: Cluster, more: int = 3) -> None:
    """Nothing that was kept waits, and new plan_times run."""
    before = len(cluster.executions("SUCCESS"))
    until("new ones run", lambda: len(cluster.executions("SUCCESS")) >= before + more)


@pytest.mark.long
def test_outcomes_are_kept_while_the_database_cannot_be_reached(
    cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with Proxy(cluster.url) as proxy:
        replica = cluster.start("away", url=proxy.dsn, environ={GATE: str(gate)})
        cluster.trigger("outlives")
        until("it runs", lambda: [m for m in cluster.marks("alive") if m.job == "outlives"])
        proxy.cut()
        gate.touch()
        until("its handler has ended", lambda: cluster.marks("end"))
        replica.event("database_unreachable")
        replica.event("heartbeats_failed")
        assert cluster.execution("outlives")["status"] == "RUNNING"
        proxy.heal()
        until("it is written", lambda: cluster.execution("outlives")["status"] == "SUCCESS")
        row = cluster.execution("outlives")
        assert (row["attempt"], row["result"]) == (1, "kept")
        _goes_on(cluster)
        ran = Counter((m.job, m.plan_time) for m in cluster.marks("start"))
        assert set(ran.values()) == {1}
        assert replica.events("lease_lost") == []
        # How many different errors there are depends on when they are noticed.
        trouble = Counter((e["event"], e["error"]) for e in replica.events() if "error" in e)
        assert trouble.total() - len(trouble) <= REPEATED_LINES, trouble
        assert replica.events("step_failed") == []
        absences = ("database_unreachable", "database_recovered")
        until("every absence has ended", lambda: [
            e["event"] for e in replica.events() if e["event"] in absences
        ][-1] == "database_recovered")  # fmt: skip
        replica.popen.terminate()
        assert replica.wait() == 0

"""A process that gets no CPU until its leases are over does nothing beside its successor."""

import signal
import time

import pytest

from tests.cluster.support.harness import Cluster
from tests.cluster.support.jobs import FIVE
from tests.waiting import until

pytestmark = pytest.mark.slow


def test_what_wakes_after_its_lease_does_not_go_on(cluster: Cluster) -> None:
    """Five handlers and five of their tasks have something to do at the instant of SIGCONT.

    One line may still come: that of the one handler that SIGSTOP found between the look at its
    lease and its line.
    """
    old = cluster.start("starved", runner_id="old", slots=len(FIVE))
    cluster.trigger("starved_async")
    until("all are alive", lambda: len({m.scope for m in cluster.marks("alive")}) == len(FIVE))
    old.signal(signal.SIGSTOP)
    cluster.start("starved", runner_id="thief", slots=len(FIVE))
    until("all are stolen", lambda: len(cluster.executions("SUCCESS")) == len(FIVE))
    woken_at = time.monotonic()
    old.signal(signal.SIGCONT)
    until("it reports", lambda: len(old.events("lease_lost")) == len(FIVE))
    late = [m for m in cluster.marks() if m.pid == old.pid and m.at > woken_at]
    assert len(late) <= 1, f"{len(late)} lines of {len({m.scope for m in late})} handlers"
    assert {(row["runner_id"], row["attempt"]) for row in cluster.executions()} == {("thief", 2)}

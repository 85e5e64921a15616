"""Many replicas on one database."""

import pytest

from tests.cluster.support.harness import Cluster
from tests.cluster.support.jobs import LEASE_VARIABLE
from tests.waiting import until


@pytest.mark.slow
def test_a_handler_that_blocks_the_loop_costs_no_other_its_lease(cluster: Cluster) -> None:
    """It blocks for longer than the stale_timeout, beside async handlers, threads and a command,
    while another replica waits to steal."""
    leases = {LEASE_VARIABLE: "6s"}  # a busy machine loses shorter ones, and longer ones outlast it
    first = cluster.start("blocking", runner_id="first", environ=leases)
    jobs = ("beside_async", "beside_thread", "beside_command")
    cluster.trigger(*jobs)
    until("the others run", lambda: len({(m.job, m.scope) for m in cluster.marks("alive")}) == 7)
    cluster.trigger("blocks_the_loop")
    until("it blocks", lambda: [m for m in cluster.marks("start") if m.job == "blocks_the_loop"])
    cluster.start("blocking", runner_id="thief", environ=leases)
    until("all have ended", lambda: len(cluster.executions("SUCCESS")) == 8)
    for row in cluster.executions():
        assert (row["attempt"], row["runner_id"]) == (1, "first"), row
    assert first.events("lease_expired") == []
    assert first.events("lease_lost") == []

"""Many replicas on one database."""

import pytest

from tests.cluster.support.harness import Cluster
from tests.cluster.support.jobs import LEASE_VARIABLE
from tests.cluster.support.outside_record import assert_every_plan_time_ran_once
from tests.waiting import until


@pytest.mark.long
def test_two_replicas_run_every_plan_time_once(cluster: Cluster) -> None:
    # Two slots for four firings a second: neither can do it alone in one claim.
    replicas = [cluster.start("steady", runner_id=name, slots=2) for name in ("one", "two")]
    until("five plan_times each", lambda: len(cluster.executions("SUCCESS")) >= 20)
    until("both have run some", lambda: cluster.runners() == {"one", "two"})
    for replica in replicas:
        replica.popen.terminate()
    for replica in replicas:
        assert replica.wait() == 0
    assert_every_plan_time_ran_once(cluster)


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

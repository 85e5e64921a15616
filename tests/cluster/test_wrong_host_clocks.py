"""Replicas whose own clocks are an hour off, and jump."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.cluster.support.clocks import FakeClock, forget, library
from tests.cluster.support.harness import Cluster
from tests.cluster.support.outside_record import assert_every_plan_time_ran_once, assert_none_early
from tests.waiting import until

pytestmark = pytest.mark.slow


HOUR = 3600


@pytest.mark.skipif(library() is None, reason="libfaketime is for Linux")
def test_i8_clocks_an_hour_off_that_jump_neither_hurry_nor_repeat(
    cluster: Cluster, tmp_path: Path
) -> None:
    clocks = [FakeClock(tmp_path / f"clock{n}", off) for n, off in enumerate((HOUR, -HOUR))]
    # Two slots for four firings a second: neither can do it alone.
    replicas = [
        cluster.start(
            "steady", wait=False, runner_id=name, slots=2, poll_interval="1s", environ=clock.environ
        )
        for name, clock in zip(("ahead", "behind"), clocks, strict=True)
    ]
    try:
        until("some have run", lambda: len(cluster.executions("SUCCESS")) >= 12)
        until("both are seen", lambda: _skews(cluster) == {"ahead": 1, "behind": -1})
        clocks[0].jump(-HOUR)
        clocks[1].jump(HOUR)
        until("both jumped", lambda: _skews(cluster) == {"ahead": -1, "behind": 1})
        before = len(cluster.executions("SUCCESS"))
        until("more have run", lambda: len(cluster.executions("SUCCESS")) >= before + 12)
        until("both have run some", lambda: cluster.runners() == {"ahead", "behind"})
        for replica in replicas:
            replica.popen.terminate()
        assert [replica.wait() for replica in replicas] == [0, 0]
        assert_every_plan_time_ran_once(cluster)
        assert_none_early(cluster)
        for replica in replicas:
            assert replica.events("step_failed") == []
            assert replica.events("lease_expired") == []
            assert replica.events("database_clock_jumped") == []
    finally:
        forget(replica.pid for replica in replicas)


def _skews(cluster: Cluster) -> dict[str, int]:
    """Whole hours by which each runner says its clock is off."""
    rows = cluster.rows("SELECT id, clock_skew FROM cronledger.runners")
    return {name: round(skew / timedelta(hours=1)) for name, skew in rows}

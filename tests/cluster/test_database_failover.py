"""The primary is killed, its synchronous standby promoted; replicas and clients follow."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tests.cluster.support.harness import Cluster, cluster_on
from tests.cluster.support.outside_record import assert_accounted_for
from tests.cluster.support.servers import Pair, stopping
from tests.database import fast_directory, scratch_directory
from tests.waiting import until

MISSING = Pair.missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]


@contextmanager
def triggering(url: str) -> Iterator[list[int]]:
    """Trigger a job as fast as it is answered, and yield the ids that were acknowledged."""
    acknowledged, stop = list[int](), threading.Event()

    def run() -> None:
        while not stop.wait(0.05):
            with suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as c:
                while not stop.wait(0.02):
                    row = c.execute("SELECT cronledger.trigger('triggered')").fetchone()
                    assert row is not None
                    acknowledged.append(row[0])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join()


def test_i2_a_failover_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with (
        scratch_directory(fast_directory()) as directory,
        stopping(pair := Pair(directory)) as url,
        cluster_on(url, tmp_path, migrated=False) as cluster,
    ):
        for name in ("one", "two"):
            cluster.start("failover", runner_id=name, slots=20)
        with triggering(url) as acknowledged:
            until(
                "it is under load", lambda: len(acknowledged) > 20 and cluster.marks("start")[20:]
            )
            pair.fail_over()
            promoted, told = time.monotonic(), len(acknowledged)
            cluster.reconnect()
            until("clients go on", lambda: len(acknowledged) > told + 20)
            until("starts go on", lambda: sum(m.at > promoted for m in cluster.marks("start")) > 20)
        _judge(cluster, acknowledged)


def _judge(cluster: Cluster, acknowledged: list[int]) -> None:
    until("nothing waits", lambda: not (cluster.executions("PENDING") or _held_up(cluster)), 60)
    cluster.drain()
    rows = cluster.executions()
    lost = set(acknowledged) - {row["id"] for row in rows}
    assert not lost, f"{len(lost)} acknowledged rows are lost: {sorted(lost)[:5]}"
    assert_accounted_for(cluster, without=("triggered",))
    starts = [m for m in cluster.marks("start") if m.job != "triggered"]
    ran = Counter((m.job, m.scope, m.plan_time) for m in starts)
    assert set(ran.values()) == {1}, [key for key, times in ran.items() if times > 1]
    assert {m.execution for m in cluster.marks("start")} <= {row["id"] for row in rows}
    assert {row["status"] for row in rows} == {"SUCCESS"}
    assert cluster.runners() == {"one", "two"}


def _held_up(cluster: Cluster) -> list[object]:
    """What runs for longer than its handler needs: its runner has to look up what became of it."""
    return cluster.rows("SELECT id FROM cronledger.executions WHERE status = 'RUNNING'"
                        " AND started_at < cronledger.db_now() - interval '2 s'")  # fmt: skip

"""The primary is killed, its synchronous standby promoted; replicas and clients follow."""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from cronledger.ledger.migrate import migrate
from tests.cluster.support.harness import Cluster
from tests.cluster.support.outside_record import assert_accounted_for
from tests.cluster.support.servers import Pair, stopping
from tests.database import fast_directory, scratch_directory
from tests.waiting import until

MISSING = Pair.missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]


class Client:
    """Triggers a job as fast as it is answered; `acknowledged`: the ids it was told."""

    def __init__(self, url: str) -> None:
        self.acknowledged: list[int] = []
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(psycopg.Error), psycopg.connect(self._url, autocommit=True) as c:
                while not self._stop.is_set():
                    row = c.execute("SELECT cronledger.trigger('triggered')").fetchone()
                    assert row is not None
                    self.acknowledged.append(row[0])
                    self._stop.wait(0.02)
            self._stop.wait(0.05)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def client(cluster_on_pair: tuple[Pair, Cluster]) -> Iterator[Client]:
    made = Client(cluster_on_pair[1].url)
    yield made
    made.close()


@pytest.fixture
def cluster_on_pair(tmp_path: Path) -> Iterator[tuple[Pair, Cluster]]:
    """Two replicas of `failover` on a primary with a synchronous standby."""
    with (
        scratch_directory(fast_directory()) as directory,
        stopping(pair := Pair(directory)) as url,
    ):
        migrate(url)
        cluster = Cluster(url, tmp_path)
        try:
            for name in ("one", "two"):
                cluster.start("failover", runner_id=name, slots=20)
            yield pair, cluster
        finally:
            cluster.close()
            print(cluster.report(), os.linesep)


def test_i2_a_failover_loses_and_repeats_nothing(
    cluster_on_pair: tuple[Pair, Cluster], client: Client
) -> None:
    pair, cluster = cluster_on_pair
    until("it is under load", lambda: len(client.acknowledged) > 20 and cluster.marks("start")[20:])
    killed = time.monotonic()
    pair.fail_over()
    promoted = time.monotonic()
    cluster.reconnect()
    told = len(client.acknowledged)
    until("clients go on", lambda: len(client.acknowledged) > told + 20)
    until("starts go on", lambda: [m for m in cluster.marks("start") if m.at > promoted][20:])
    client.close()
    until("nothing waits", lambda: not (cluster.executions("PENDING") or _held_up(cluster)), 60)
    cluster.drain()

    rows = cluster.executions()
    lost = set(client.acknowledged) - {row["id"] for row in rows}
    assert not lost, f"{len(lost)} acknowledged rows are lost: {sorted(lost)[:5]}"
    assert_accounted_for(cluster, without=("triggered",))
    starts = [m for m in cluster.marks("start") if m.job != "triggered"]
    ran = Counter((m.job, m.scope, m.plan_time) for m in starts)
    assert set(ran.values()) == {1}, [key for key, times in ran.items() if times > 1]
    assert {m.execution for m in cluster.marks("start")} <= {row["id"] for row in rows}
    assert {row["status"] for row in rows} == {"SUCCESS"}
    gap = max(b - a for a, b in pairwise(sorted(m.at for m in starts)))
    print(f"promoted {promoted - killed:.2f} s after the kill; no start for {gap:.2f} s;"
          f" {len(client.acknowledged)} acknowledged, {len(rows)} executions")  # fmt: skip
    for name in ("one", "two"):
        assert name in {m["runner_id"] for m in rows}


def _held_up(cluster: Cluster) -> list[object]:
    """What runs for longer than its handler needs: its runner has to look up what became of it."""
    return cluster.rows("SELECT id FROM cronledger.executions WHERE status = 'RUNNING'"
                        " AND started_at < cronledger.db_now() - interval '2 s'")  # fmt: skip

"""A live replica is steered by another process that has nothing but SQL."""

from typing import Any

import pytest

from tests.cluster.support.harness import Cluster
from tests.waiting import until

pytestmark = pytest.mark.long

LISTENING: dict[str, Any] = {"poll_interval": "10m"}
"""Nothing looks for work by itself within the patience of a test: what is noticed was notified."""


def ended(cluster: Cluster, execution_id: int) -> dict[str, Any]:
    """The execution once it has ended for good."""

    def look() -> dict[str, Any] | None:
        (row,) = cluster.rows(
            "SELECT to_jsonb(e) FROM cronledger.executions e WHERE id = %s", execution_id
        )
        over = row["status"] not in ("PENDING", "RUNNING") and row["next_attempt_at"] is None
        return row if over else None

    return until(f"the end of {execution_id}", look)


def test_a_live_replica_is_steered_from_sql(cluster: Cluster) -> None:
    cluster.start("control", **LISTENING)
    (made,) = cluster.rows("SELECT cronledger.trigger('told', payload => '[1]')")
    assert ended(cluster, made)["result"] == {"trigger": "manual", "payload": [1]}
    (made,) = cluster.rows("SELECT cronledger.enqueue('told', payload => '[2]', key => 'k')")
    assert ended(cluster, made)["result"] == {"trigger": "enqueue", "payload": [2]}

    assert cluster.rows("SELECT cronledger.pause('told', 'why', requested_by => 'me')") == [True]
    (waits,) = cluster.rows("SELECT cronledger.enqueue('told', payload => '[3]')")
    (forced,) = cluster.rows("SELECT cronledger.trigger('told', force => true)")
    assert ended(cluster, forced)["status"] == "SUCCESS"
    (status,) = cluster.rows("SELECT status FROM cronledger.executions WHERE id = %s", waits)
    assert status == "PENDING"
    assert cluster.rows("SELECT cronledger.cancel(%s, 'me')", waits) == ["cancelled"]
    assert cluster.rows("SELECT cronledger.retry(%s, requested_by => 'you')", waits) == ["retried"]
    assert cluster.rows("SELECT cronledger.resume('told')") == [True]
    assert ended(cluster, waits)["status"] == "SUCCESS"


def test_jobs_that_sql_writes_are_noticed(cluster: Cluster) -> None:
    cluster.start("control", **LISTENING)
    cluster.rows(
        "INSERT INTO cronledger.jobs (name, handler, target)"
        " SELECT 'written', handler, target FROM cronledger.jobs WHERE name = 'told' RETURNING name"
    )
    cluster.rows(
        "UPDATE cronledger.jobs SET schedule = '@every 1s' WHERE name = 'written' RETURNING name"
    )
    until("it runs", lambda: any(
        row["job_name"] == "written" for row in cluster.executions("SUCCESS")
    ))  # fmt: skip

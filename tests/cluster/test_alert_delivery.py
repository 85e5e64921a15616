"""Replicas deliver alerts in slots of their own, and a drain waits for them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support.harness import Cluster
from tests.cluster.support.jobs import RECEIVER
from tests.waiting import until

pytestmark = pytest.mark.long


class Receiver:
    """What the channel `ops` has received. While `held` exists a delivery does not end, and while
    `refuses` exists it fails."""

    def __init__(self, directory: Path) -> None:
        self.environ = {RECEIVER: str(directory)}
        self.held, self.refuses = directory / "held", directory / "refuses"
        self._received = directory / "received"

    @property
    def messages(self) -> list[dict[str, Any]]:
        lines = self._received.read_text().splitlines() if self._received.exists() else []
        return [json.loads(line) for line in lines]

    def events(self) -> list[str]:
        return [alert["event"] for message in self.messages for alert in message["alerts"]]


@pytest.fixture
def receiver(tmp_path: Path) -> Receiver:
    return Receiver(tmp_path)


def deliver(cluster: Cluster) -> None:
    cluster.rows("SELECT cronledger.test_channel('ops', '1 h')")


def create(cluster: Cluster) -> None:
    """Create a delivery of an alert, which is tried again unlike a test."""
    cluster.rows(
        "WITH made AS (INSERT INTO cronledger.deliveries (channel) VALUES ('ops') RETURNING id)"
        " INSERT INTO cronledger.raised_alerts"
        " (at, event, kind, channel, since, count, summary, details, delivery_id)"
        " SELECT now(), 'failed', 'opened', 'ops', now(), 1, 'x', '{}', m.id FROM made m"
        " RETURNING pg_notify('cronledger', 'alerts')::text"
    )


def deliveries(cluster: Cluster, status: str) -> list[dict[str, Any]]:
    return cluster.rows(
        "SELECT to_jsonb(d) FROM cronledger.deliveries d WHERE status = %s ORDER BY id", status
    )


def test_a_failure_reaches_the_channel_also_without_a_free_slot(
    cluster: Cluster, receiver: Receiver
) -> None:
    cluster.start("alerting", slots=1, environ=receiver.environ)
    cluster.rows("SELECT cronledger.trigger('flipping', payload => 'false')")
    until("the failure is received", lambda: receiver.events() == ["failed"])
    (alert,) = receiver.messages[0]["alerts"]
    assert (alert["job"], alert["kind"]) == ("flipping", "opened")
    assert "no disk" in alert["summary"]
    until("it is delivered", lambda: cluster.rows(
        "SELECT delivery_status FROM cronledger.alerts") == ["SUCCESS"])  # fmt: skip
    cluster.trigger("occupying")
    until("the slot is taken", lambda: cluster.marks("alive"))
    deliver(cluster)
    until("the other is received", lambda: receiver.events() == ["failed", "test"])
    assert cluster.execution("occupying")["status"] == "RUNNING"


def test_a_drain_waits_for_a_delivery_that_a_replica_with_no_alert_slots_left(
    cluster: Cluster, receiver: Receiver
) -> None:
    cluster.start("alerting", runner_id="none", alert_slots=0, environ=receiver.environ)
    deliver(cluster)
    receiver.held.touch()
    replica = cluster.start("alerting", runner_id="other", environ=receiver.environ)
    until("it is under way", lambda: receiver.messages)
    replica.popen.terminate()
    replica.event("runner_draining")
    receiver.held.unlink()
    assert replica.wait() == 0
    (delivered,) = deliveries(cluster, "SUCCESS")
    assert delivered["runner_id"] == "other"


def test_a_delivery_that_a_person_requests_does_not_wait_for_a_poll(
    cluster: Cluster, receiver: Receiver
) -> None:
    """Neither a test, nor a retry, nor the resume of a channel."""
    cluster.start("control", poll_interval="1h", environ=receiver.environ)
    # Newer than the check-in of the replica.
    cluster.rows(
        "INSERT INTO cronledger.channels (name, settings) VALUES ('ops',"
        """ '{"kind": "python", "python": "tests.cluster.support.jobs:receive"}') RETURNING 1"""
    )

    def delivered(number: int) -> None:
        # Its end is written, so that the next one does not wait for its slot.
        until("it is delivered", lambda: len(deliveries(cluster, "SUCCESS")) == number)

    deliver(cluster)
    delivered(1)
    receiver.refuses.touch()
    create(cluster)
    (failed,) = until("it has failed", lambda: deliveries(cluster, "FAILED"))
    receiver.refuses.unlink()
    cluster.rows("SELECT cronledger.retry_delivery(%s)::text", failed["id"])
    delivered(2)
    cluster.rows("SELECT cronledger.pause_channel('ops')")
    create(cluster)
    cluster.rows("SELECT cronledger.resume_channel('ops')")
    delivered(3)

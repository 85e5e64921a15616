"""Replicas deliver alerts in slots of their own; a delivery survives its replica."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support.harness import Cluster
from tests.cluster.support.jobs import RECEIVER
from tests.waiting import until


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


MESSAGE = json.dumps({"alerts": [{"event": "test", "id": 0}]})


def deliver(cluster: Cluster) -> None:
    cluster.rows("SELECT cronledger.trigger('alerts.ops', payload => %s::jsonb)", MESSAGE)


def delivered_by(cluster: Cluster) -> str:
    """Return the runner that has delivered the message, once it is delivered."""
    until("it is delivered", lambda: cluster.executions("SUCCESS"))
    return str(cluster.execution("alerts.ops")["runner_id"])


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


@pytest.mark.parametrize("how", ["is killed", "drains"])
def test_a_delivery_of_a_replica_that_ends_is_repeated(
    cluster: Cluster, receiver: Receiver, how: str
) -> None:
    receiver.held.touch()
    first = cluster.start(
        "alerting", runner_id="first", drain_timeout="0s", environ=receiver.environ
    )
    cluster.rows(
        "UPDATE cronledger.jobs SET stale_timeout = '3 s' WHERE name = 'alerts.ops' RETURNING 1"
    )
    deliver(cluster)
    until("it is under way", lambda: receiver.messages)
    if how == "drains":
        first.popen.terminate()
        assert first.wait() == 0
        row = cluster.execution("alerts.ops")
        assert (row["status"], row["lease_token"]) == ("PENDING", None)
    first.kill()
    receiver.held.unlink()
    # It does not apply the jobs again, which would restore stale_timeout.
    cluster.start("alerting", runner_id="second", apply=False, environ=receiver.environ)
    assert delivered_by(cluster) == "second"
    assert receiver.events() == ["test"] * 2
    assert receiver.messages[0] == receiver.messages[1]


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
    assert delivered_by(cluster) == "other"


def test_a_delivery_that_a_person_requests_does_not_wait_for_a_poll(
    cluster: Cluster, receiver: Receiver
) -> None:
    """Neither after `trigger` nor after `retry` and `resume`."""
    cluster.start("control", poll_interval="1h", environ=receiver.environ)
    # Newer than the check-in of the replica.
    cluster.rows(
        "INSERT INTO cronledger.jobs (name, queue, handler, target) VALUES ('alerts.ops', 'alerts',"
        """ 'external', '{"channel": {"kind": "python", "python":"""
        """ "tests.cluster.support.jobs:receive"}}') RETURNING 1"""
    )

    def delivered(number: int) -> None:
        # Its end is written, so that the next one does not wait for its slot.
        until("it is delivered", lambda: len(cluster.executions("SUCCESS")) == number)

    deliver(cluster)
    delivered(1)
    receiver.refuses.touch()
    deliver(cluster)
    (failed,) = until("it has failed", lambda: cluster.executions("FAILED"))
    receiver.refuses.unlink()
    cluster.rows("SELECT cronledger.retry(%s)", failed["id"])
    delivered(2)
    cluster.rows("SELECT cronledger.pause('alerts.ops')::text")
    cluster.rows("SELECT cronledger.enqueue('alerts.ops', payload => %s::jsonb)", MESSAGE)
    cluster.rows("SELECT cronledger.resume('alerts.ops')::text")
    delivered(3)

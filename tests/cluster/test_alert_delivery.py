"""Replicas deliver alerts in slots of their own; a delivery survives its replica."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, LiteralString

import pytest

from tests.cluster.support.harness import Cluster
from tests.waiting import until


class Receiver:
    """A receiver of webhooks. While it is held, it keeps requests without a response."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.open = threading.Event()
        self.open.set()
        self.refuses = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.messages.append(json.loads(body))
                receiver.open.wait()
                self.send_response(500 if receiver.refuses else 204)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def environ(self) -> dict[str, str]:
        return {"ALERT_URL": f"http://127.0.0.1:{self.server.server_address[1]}/"}

    def events(self) -> list[str]:
        return [alert["event"] for message in self.messages for alert in message["alerts"]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.open.set()
    made.server.shutdown()
    made.server.server_close()


def deliver(cluster: Cluster) -> None:
    """Create a delivery, as the alert step does."""
    alert = {
        "id": 1, "event": "failed", "kind": "opened", "since": None, "job": "flipping",
        "scope": "global", "runner": None, "summary": "flipping failed", "plan_time": None,
        "execution_id": None, "owner": None,
    }  # fmt: skip
    payload = {"channel": "ops", "ledger": "a-ledger", "alerts": [alert]}
    cluster.rows(
        "SELECT cronledger_internal.create_message(j, 'global', 'global', NULL, %s::jsonb, NULL,"
        " 'test'), pg_notify('cronledger', 'alerts')::text"
        " FROM cronledger.jobs j WHERE j.name = 'alerts.ops'",
        json.dumps(payload),
    )


def delivery(cluster: Cluster) -> dict[str, Any]:
    return cluster.execution("alerts.ops")


def ended(cluster: Cluster) -> bool:
    return bool(delivery(cluster)["status"] == "SUCCESS")


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
    until("the other is received", lambda: receiver.events() == ["failed"] * 2)
    assert cluster.execution("occupying")["status"] == "RUNNING"


def test_a_delivery_of_a_killed_replica_is_repeated(cluster: Cluster, receiver: Receiver) -> None:
    receiver.open.clear()
    first = cluster.start("alerting", runner_id="first", environ=receiver.environ)
    cluster.rows(
        "UPDATE cronledger.jobs SET stale_timeout = '3 s' WHERE name = 'alerts.ops' RETURNING 1"
    )
    deliver(cluster)
    until("it is under way", lambda: receiver.messages)
    first.kill()
    receiver.open.set()
    # It does not apply the jobs again, which would restore stale_timeout.
    cluster.start("alerting", runner_id="second", apply=False, environ=receiver.environ)
    until("it is delivered", lambda: ended(cluster))
    assert delivery(cluster)["runner_id"] == "second"
    assert receiver.events() == ["failed"] * 2
    assert receiver.messages[0] == receiver.messages[1]


def test_a_drain_returns_a_delivery_that_does_not_end(cluster: Cluster, receiver: Receiver) -> None:
    receiver.open.clear()
    first = cluster.start(
        "alerting", runner_id="first", drain_timeout="0s", environ=receiver.environ
    )
    deliver(cluster)
    until("it is under way", lambda: receiver.messages)
    first.popen.terminate()
    assert first.wait() == 0
    assert (delivery(cluster)["status"], delivery(cluster)["lease_token"]) == ("PENDING", None)
    receiver.open.set()
    cluster.start("alerting", runner_id="second", environ=receiver.environ)
    until("it is delivered", lambda: ended(cluster))
    assert delivery(cluster)["runner_id"] == "second"


def test_a_drain_waits_for_a_delivery_that_a_replica_with_no_alert_slots_left(
    cluster: Cluster, receiver: Receiver
) -> None:
    cluster.start("alerting", runner_id="none", alert_slots=0, environ=receiver.environ)
    deliver(cluster)
    receiver.open.clear()
    replica = cluster.start("alerting", runner_id="other", environ=receiver.environ)
    until("it is under way", lambda: receiver.messages)
    replica.popen.terminate()
    replica.event("runner_draining")
    receiver.open.set()
    assert replica.wait() == 0
    assert ended(cluster)
    assert delivery(cluster)["runner_id"] == "other"


def test_a_delivery_that_a_person_requests_does_not_wait_for_a_poll(
    cluster: Cluster, receiver: Receiver
) -> None:
    """Neither after `trigger` nor after `retry` and `resume`."""
    cluster.start("steady", poll_interval="1h", environ=receiver.environ)
    # Newer than the check-in of the replica.
    cluster.rows(
        "INSERT INTO cronledger.jobs (name, queue, handler, target) VALUES ('alerts.ops', 'alerts',"
        """ 'external', '{"channel": {"kind": "webhook", "url": {"env": "ALERT_URL"},"""
        """ "allow_private": true}}') RETURNING 1"""
    )
    message = json.dumps({"alerts": [{"event": "test", "id": 0}]})

    def delivered(number: int) -> None:
        # Its end is written, so that the next one does not wait for its slot.
        until("it is delivered", lambda: len(deliveries("SUCCESS")) == number)

    def deliveries(status: str) -> list[int]:
        rows = cluster.executions(status)
        return [row["id"] for row in rows if row["job_name"] == "alerts.ops"]

    trigger: LiteralString = "SELECT cronledger.trigger('alerts.ops', payload => %s::jsonb)"
    cluster.rows(trigger, message)
    delivered(1)
    receiver.refuses = True
    cluster.rows(trigger, message)
    (failed,) = until("it has failed", lambda: deliveries("FAILED"))
    receiver.refuses = False
    cluster.rows("SELECT cronledger.retry(%s)", failed)
    delivered(2)
    cluster.rows("SELECT cronledger.pause('alerts.ops')::text")
    cluster.rows("SELECT cronledger.enqueue('alerts.ops', payload => %s::jsonb)", message)
    cluster.rows("SELECT cronledger.resume('alerts.ops')::text")
    delivered(3)

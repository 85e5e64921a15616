"""Spans of replicas that are processes of their own."""

import signal

from tests.cluster.support.harness import Cluster, Process
from tests.cluster.support.jobs import LEASE_VARIABLE
from tests.waiting import until

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def outcomes(process: Process) -> list[tuple[int, str]]:
    """Return attempt and outcome of each span that has ended."""
    found = [span["attributes"] for span in process.events("span")]
    return [(x["cronledger.attempt"], x["cronledger.outcome"]) for x in found]


def test_a_stolen_execution_has_a_span_for_each_attempt(cluster: Cluster) -> None:
    leases = {LEASE_VARIABLE: "12s"}  # a busy machine loses shorter ones before the replica stops
    first = cluster.start("traced", runner_id="first", tracing=True, environ=leases)
    cluster.rows("SELECT cronledger.enqueue('traced_async', traceparent => %s)", PARENT)
    until("it runs", lambda: cluster.marks("alive"))
    first.signal(signal.SIGSTOP)
    second = cluster.start("traced", runner_id="second", tracing=True, environ=leases)
    until("it is stolen and has ended", lambda: cluster.executions("SUCCESS"))
    first.signal(signal.SIGCONT)
    first.event("span")
    cluster.drain()
    assert (outcomes(first), outcomes(second)) == ([(1, "lost")], [(2, "success")])
    (lost,), (stole,) = first.events("span"), second.events("span")
    assert lost["status"]["status_code"] == "ERROR"
    for span, process in ((lost, first), (stole, second)):
        assert [link["context"]["span_id"] for link in span["links"]] == ["0xb7ad6b7169203331"]
        (begun,) = process.events("execution_started")
        assert f"0x{begun['trace_id']}" == span["context"]["trace_id"]
    assert f"0x{cluster.execution('traced_async')['trace_id']}" == stole["context"]["trace_id"]

"""The database goes away for a while, in several ways."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cronledger.embedded.server import Embedded, find_binaries
from cronledger.ledger.migrate import migrate
from tests.cluster.support.harness import Cluster, Process
from tests.cluster.support.jobs import GATE, LEASE_VARIABLE
from tests.cluster.support.proxy import Proxy
from tests.database import chosen_binaries, fast_directory, scratch_directory
from tests.waiting import until

REPEATED_LINES = 6


def _assert_it_went_on(cluster: Cluster, replica: Process) -> None:
    """What ran meanwhile ended as it should, and nothing ran twice."""
    until("the outcome is written", lambda: cluster.execution("outlives")["status"] == "SUCCESS")
    row = cluster.execution("outlives")
    assert (row["attempt"], row["result"]) == (1, "kept")
    done = len(cluster.executions("SUCCESS"))
    until("new ones run", lambda: len(cluster.executions("SUCCESS")) > done + 1)
    ran = Counter((m.job, m.plan_time) for m in cluster.marks("start"))
    assert set(ran.values()) == {1}
    # How many different errors there are depends on when they are noticed.
    trouble = Counter((e["event"], e["error"]) for e in replica.events() if "error" in e)
    assert trouble.total() - len(trouble) <= REPEATED_LINES, trouble
    assert replica.events("step_failed") == []
    assert replica.events("lease_lost") == []
    until(
        "every absence has ended", lambda: _absences(replica)[-1:] in ([], ["database_recovered"])
    )


def _absences(replica: Process) -> list[str]:
    names = [event["event"] for event in replica.events()]
    return [name for name in names if name in ("database_unreachable", "database_recovered")]


def _gated(cluster: Cluster, directory: Path, **settings: Any) -> tuple[Process, Path]:
    """Return a replica of `away`, and the file whose creation ends `outlives`."""
    gate = directory / "gate"
    return cluster.start("away", environ={GATE: str(gate)}, **settings), gate


def _busy(cluster: Cluster) -> None:
    cluster.trigger("outlives")
    until("it runs", lambda: [m for m in cluster.marks("alive") if m.job == "outlives"])


def _ended(cluster: Cluster) -> bool:
    return any(m.job == "outlives" for m in cluster.marks("end"))


def test_outcomes_are_kept_while_the_database_cannot_be_reached(
    cluster: Cluster, tmp_path: Path
) -> None:
    with Proxy(cluster.url) as proxy:
        replica, gate = _gated(cluster, tmp_path, url=proxy.dsn)
        _busy(cluster)
        proxy.cut()
        gate.touch()
        until("its handler has ended", lambda: _ended(cluster))
        replica.event("database_unreachable")
        replica.event("heartbeats_failed")
        assert cluster.execution("outlives")["status"] == "RUNNING"
        proxy.heal()
        _assert_it_went_on(cluster, replica)
        assert "database_recovered" in _absences(replica)
        replica.popen.terminate()
        assert replica.wait() == 0


def test_an_attempt_that_an_outage_ends_names_the_outage_and_the_setting(
    cluster: Cluster,
) -> None:
    with Proxy(cluster.url) as proxy:
        # So long that a heartbeat fails before the lease ends, and is the reason for that.
        replica = cluster.start("crash", url=proxy.dsn, environ={LEASE_VARIABLE: "10s"})
        cluster.trigger("async_once")
        until("it runs", lambda: cluster.marks("alive"))
        proxy.cut()
        replica.event("lease_expired")
        proxy.heal()
        ended = "SELECT attempts -> 0 ->> 'error_msg' FROM cronledger.executions WHERE attempt > 1"
        until("the next attempt runs", lambda: cluster.rows(ended))
    (message,) = cluster.rows(ended)
    # The process may notice it later than at its deadline.
    said = r"stopped because its lease was not renewed for \d+s \(the ledger was"
    assert re.match(said, message), message
    assert message.endswith("a stale_timeout longer than 10s")


@pytest.mark.slow
def test_a_slow_network_costs_nothing_but_time(cluster: Cluster) -> None:
    with Proxy(cluster.url) as proxy:
        proxy.delay(0.05)
        replica = cluster.start("away", url=proxy.dsn)
        _busy(cluster)
        until("it has ended", lambda: cluster.execution("outlives")["status"] == "SUCCESS")
        assert replica.events("database_unreachable") == []
        assert replica.events("step_failed") == []


@pytest.mark.slow
def test_terminated_backends_are_replaced(cluster: Cluster, tmp_path: Path) -> None:
    replica, gate = _gated(cluster, tmp_path)
    _busy(cluster)
    for _ in range(3):
        cluster.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'cronledger%'"
        )
    gate.touch()
    until("its handler has ended", lambda: _ended(cluster))
    _assert_it_went_on(cluster, replica)


@pytest.fixture
def own_server() -> Iterator[tuple[Embedded, str]]:
    """A server that a test may restart, and the DSN of its database."""
    with scratch_directory(fast_directory()) as directory:
        embedded = Embedded(directory, find_binaries(chosen_binaries()).directory)
        try:
            yield embedded, embedded.start()
        finally:
            embedded.close()


@pytest.mark.slow
def test_a_restart_of_the_database_is_survived(
    own_server: tuple[Embedded, str], tmp_path: Path
) -> None:
    server, url = own_server
    migrate(url)
    cluster = Cluster(url, tmp_path)
    try:
        replica, gate = _gated(cluster, tmp_path)
        _busy(cluster)
        server.close()
        gate.touch()
        until("its handler has ended", lambda: _ended(cluster))
        replica.event("database_unreachable")
        replica.event("heartbeats_failed")
        with pytest.raises(psycopg.OperationalError):
            cluster.executions()
        assert server.start() == url
        cluster.reconnect()
        _assert_it_went_on(cluster, replica)
        assert "database_recovered" in _absences(replica)
    finally:
        cluster.close()
        print(cluster.report(), os.linesep)

"""The server or the network fails for a while. `tests.chaos` causes more kinds of faults."""

import re
from collections import Counter
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.cluster.support.harness import Cluster, Process, cluster_on
from tests.cluster.support.jobs import GATE, LEASE_VARIABLE
from tests.cluster.support.outside_record import assert_accounted_for
from tests.cluster.support.proxy import Proxy
from tests.cluster.support.servers import OwnServer, stopping
from tests.database import fast_directory, scratch_directory
from tests.waiting import until

REPEATED_LINES = 6
HANDFUL = 8
"""Lines a replica may log for one outage, however long."""
ROUTINE = ("execution_", "partitions_", "runner_", "slots_", "ended")


def _trouble(replica: Process) -> list[str]:
    return [e["event"] for e in replica.events() if not e["event"].startswith(ROUTINE)]


def _goes_on(cluster: Cluster, more: int = 3) -> None:
    """Nothing that was kept waits, and new plan_times run."""
    before = len(cluster.executions("SUCCESS"))
    until("new ones run", lambda: len(cluster.executions("SUCCESS")) >= before + more)


def _assert_nothing_twice(cluster: Cluster, without: tuple[str, ...] = ()) -> None:
    assert_accounted_for(cluster, without)
    ran = Counter((m.job, m.scope, m.plan_time) for m in cluster.marks("start"))
    assert set(ran.values()) == {1}


@pytest.mark.long
def test_outcomes_are_kept_while_the_database_cannot_be_reached(
    cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with Proxy(cluster.url) as proxy:
        replica = cluster.start("away", url=proxy.dsn, environ={GATE: str(gate)})
        cluster.trigger("outlives")
        until("it runs", lambda: [m for m in cluster.marks("alive") if m.job == "outlives"])
        proxy.cut()
        gate.touch()
        until("its handler has ended", lambda: cluster.marks("end"))
        replica.event("database_unreachable")
        replica.event("heartbeats_failed")
        assert cluster.execution("outlives")["status"] == "RUNNING"
        proxy.heal()
        until("it is written", lambda: cluster.execution("outlives")["status"] == "SUCCESS")
        row = cluster.execution("outlives")
        assert (row["attempt"], row["result"]) == (1, "kept")
        _goes_on(cluster)
        ran = Counter((m.job, m.plan_time) for m in cluster.marks("start"))
        assert set(ran.values()) == {1}
        assert replica.events("lease_lost") == []
        # How many different errors there are depends on when they are noticed.
        trouble = Counter((e["event"], e["error"]) for e in replica.events() if "error" in e)
        assert trouble.total() - len(trouble) <= REPEATED_LINES, trouble
        assert replica.events("step_failed") == []
        absences = ("database_unreachable", "database_recovered")
        until("every absence has ended", lambda: [
            e["event"] for e in replica.events() if e["event"] in absences
        ][-1] == "database_recovered")  # fmt: skip
        replica.popen.terminate()
        assert replica.wait() == 0


@pytest.mark.long
def test_an_attempt_that_an_outage_ends_names_the_outage_and_the_setting(
    cluster: Cluster,
) -> None:
    with Proxy(cluster.url) as proxy:
        # So long that a heartbeat fails before the lease ends, and is the reason for that.
        replica = cluster.start("crash", url=proxy.dsn, environ={LEASE_VARIABLE: "6s"})
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
    assert message.endswith("a stale_timeout longer than 6s")


@pytest.mark.slow
def test_a_restart_under_load_costs_a_handful_of_lines(tmp_path: Path) -> None:
    with (
        scratch_directory(fast_directory()) as directory,
        stopping(server := OwnServer(directory / "s")) as url,
        cluster_on(url, tmp_path, migrated=False) as cluster,
    ):
        replicas = [cluster.start("steady", runner_id=name) for name in ("one", "two")]
        until("it is under load", lambda: len(cluster.executions("SUCCESS")) >= 4)
        server.stop()
        for replica in replicas:
            replica.event("database_unreachable")
        assert server.start() == url
        cluster.reconnect()
        for replica in replicas:
            replica.event("database_recovered")
        _goes_on(cluster)
        cluster.drain()
        for replica in replicas:
            assert len(_trouble(replica)) <= HANDFUL, _trouble(replica)
            assert replica.events("step_failed") == []
        _assert_nothing_twice(cluster)


KINDS = ("cronledger", "cronledger heartbeats", "cronledger listen", "cronledger transaction")


@pytest.mark.long
def test_each_kind_of_connection_may_be_terminated(cluster: Cluster) -> None:
    """The work in a transaction fails with it, and takes what it wrote along; nothing else does."""
    with psycopg.connect(cluster.url) as c:
        c.execute("CREATE TABLE effects (id bigint)")
    # A shorter lease is lost if the machine stands still while its heartbeats are interrupted.
    replica = cluster.start("effects", environ={LEASE_VARIABLE: "18s"})
    cluster.trigger("held")
    for kind in KINDS:
        killed = until(f"{kind!r} was terminated", partial(_terminate, cluster, kind))
        until(f"{kind!r} is back", partial(_others, cluster, kind, killed))
    _goes_on(cluster)
    failed = [r for r in cluster.executions("FAILED") if r["job_name"] != "counted"]
    assert failed == []
    effects = set(cluster.rows("SELECT id FROM effects"))
    # Between this and the last statement another may have ended: look at those that were there.
    done = {r["id"] for r in cluster.executions("SUCCESS") if r["job_name"] == "counted"}
    assert effects <= done
    assert len(effects) == len(cluster.rows("SELECT DISTINCT id FROM effects WHERE id = ANY (%s)",
                                            list(effects)))  # fmt: skip
    assert cluster.execution("held")["status"] in ("RUNNING", "SUCCESS")  # it lives for a minute
    assert replica.events("lease_lost") == []
    assert replica.events("lease_expired") == []
    _assert_nothing_twice(cluster, without=("held",))


def _others(cluster: Cluster, kind: str, known: set[int]) -> set[int]:
    """The pids of backends of that kind that were not `known`."""
    pids = cluster.rows(
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = %s",
        kind,
    )
    return set(pids) - known


def _terminate(cluster: Cluster, kind: str) -> set[int]:
    """The pids of all backends of that kind, which are gone."""
    # Not in WHERE, where it would come first and end every backend of the server.
    ended = cluster.rows(
        "SELECT pid, pg_terminate_backend(pid, 2000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = %s",
        kind,
    )
    return {pid for pid, _ in ended}

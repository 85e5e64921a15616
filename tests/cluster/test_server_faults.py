"""What servers, networks and administrators do to a replica, one at a time."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cronledger.ledger.migrate import migrate
from tests.cluster.support.bouncer import Bouncer, program
from tests.cluster.support.harness import Cluster, Process
from tests.cluster.support.jobs import LEASE_VARIABLE
from tests.cluster.support.outside_record import (
    assert_accounted_for,
    assert_every_plan_time_ran_once,
)
from tests.cluster.support.proxy import Proxy
from tests.cluster.support.servers import How, OwnServer, fill_disk, free_disk, stopping
from tests.database import fast_directory, scratch_directory
from tests.waiting import until

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


# -- the server ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
def test_a_restart_under_load_costs_a_handful_of_lines(how: How, tmp_path: Path) -> None:
    with (
        scratch_directory(fast_directory()) as directory,
        stopping(server := OwnServer(directory / "s")) as url,
    ):
        migrate(url)
        cluster = Cluster(url, tmp_path)
        try:
            replicas = [cluster.start("steady", runner_id=name) for name in ("one", "two")]
            until("it is under load", lambda: len(cluster.executions("SUCCESS")) >= 4)
            server.stop(how)
            for replica in replicas:
                replica.event("database_unreachable")
            assert server.start() == url
            cluster.reconnect()
            for replica in replicas:
                replica.event("database_recovered")
            _goes_on(cluster)
            for replica in replicas:
                replica.popen.terminate()
                assert replica.wait() == 0
                assert len(_trouble(replica)) <= HANDFUL, _trouble(replica)
                assert replica.events("step_failed") == []
            _assert_nothing_twice(cluster)
        finally:
            cluster.close()
            print(cluster.report(), os.linesep)


# -- connections -----------------------------------------------------------------------------------

KINDS = ("cronledger", "cronledger heartbeats", "cronledger listen", "cronledger transaction")


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


@pytest.mark.slow
@pytest.mark.skipif(program() is None, reason="there is no pgbouncer on this machine")
@pytest.mark.parametrize("listen", [True, False])
def test_pgbouncer_between_is_killed_and_comes_back(listen: bool, tmp_path: Path) -> None:
    """In transaction mode; LISTEN goes around it, or there is none."""
    with (
        scratch_directory(fast_directory()) as directory,
        stopping(server := OwnServer(directory / "s")) as url,
    ):
        migrate(url)
        bouncer = Bouncer(directory / "b", server, ("postgres",))
        cluster = Cluster(url, tmp_path)
        try:
            around: dict[str, Any] = {"listen_url": url} if listen else {}
            replica = cluster.start("steady", url=bouncer.dsn("postgres"), pgbouncer=True, **around)
            until("it runs", lambda: len(cluster.executions("SUCCESS")) >= 4)
            bouncer.kill()
            replica.event("database_unreachable")
            bouncer.start()
            replica.event("database_recovered")
            _goes_on(cluster)
            assert len(_trouble(replica)) <= HANDFUL, _trouble(replica)
            assert replica.events("step_failed") == []
            _assert_nothing_twice(cluster)
        finally:
            cluster.close()
            bouncer.kill()
            print(cluster.report(), os.linesep)


# -- as an ordinary role ---------------------------------------------------------------------------


class Role:
    """A runner's role that an administrator restricts; `dsn` connects as it."""

    def __init__(self, cluster: Cluster) -> None:
        self.name = f"runner_{os.getpid()}"
        self._url = cluster.url
        self.dsn = make_conninfo(cluster.url, user=self.name)
        self.alter("CREATE ROLE {} LOGIN")
        self.alter("GRANT cronledger_runner TO {}")

    def alter(self, statement: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as c:
            c.execute(sql.SQL(statement).format(sql.Identifier(self.name)))

    def drop(self) -> None:
        self.alter("DROP OWNED BY {}")
        self.alter("DROP ROLE {}")

    def end_connections(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as c:
            c.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                      " WHERE usename = %s", [self.name])  # fmt: skip


@pytest.fixture
def role(cluster: Cluster) -> Iterator[Role]:
    made = Role(cluster)
    yield made
    cluster.close()
    made.drop()


@pytest.mark.slow
def test_no_connection_to_be_had_is_a_database_that_is_away(cluster: Cluster, role: Role) -> None:
    replica = cluster.start("steady", url=role.dsn)
    until("it runs", lambda: cluster.executions("SUCCESS"))
    role.alter("ALTER ROLE {} CONNECTION LIMIT 0")
    role.end_connections()
    replica.event("database_unreachable")
    # Fewer than it asks for, and one beside those of the listener and of heartbeats.
    role.alter("ALTER ROLE {} CONNECTION LIMIT 3")
    replica.event("database_recovered")
    _goes_on(cluster)
    role.alter("ALTER ROLE {} CONNECTION LIMIT -1")
    _goes_on(cluster)
    assert replica.events("step_failed") == []
    _assert_nothing_twice(cluster)


@pytest.mark.slow
def test_a_server_that_became_read_only_is_waited_for(cluster: Cluster, role: Role) -> None:
    """What hosts do to a database whose disk is full."""
    replica = cluster.start("steady", url=role.dsn)
    until("it runs", lambda: cluster.executions("SUCCESS"))
    role.alter("ALTER ROLE {} SET default_transaction_read_only = on")
    role.end_connections()
    replica.event("step_failed")
    role.alter("ALTER ROLE {} RESET default_transaction_read_only")
    role.end_connections()
    _goes_on(cluster)
    _assert_nothing_twice(cluster)


# -- writes ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_full_disk_costs_no_outcome(cluster: Cluster) -> None:
    """What ended while nothing could be written is written afterwards, and not run again.

    The fault is raised on a channel as soon as an alert can be written.
    """
    replica = cluster.start("away")
    cluster.rows(
        "INSERT INTO cronledger.jobs (name, queue, handler, target) VALUES ('alerts.ops', 'alerts',"
        ' \'external\', \'{"channel": {"kind": "command", "command": ["true"],'
        ' "on_ledger": ["runner_failing"]}}\') RETURNING name'
    )
    # The fault of a busy machine may outlast the lease of 12 s.
    cluster.rows("UPDATE cronledger.jobs SET stale_timeout = '60s' WHERE name = 'outlives'"
                 " RETURNING 1")  # fmt: skip
    cluster.trigger("outlives")
    until("it runs", lambda: [m for m in cluster.marks("alive") if m.job == "outlives"])
    with psycopg.connect(cluster.url, autocommit=True) as c:
        fill_disk(c)
        until("its handler has ended", lambda: cluster.marks("end"))
        replica.event("step_failed")
        assert cluster.execution("outlives")["status"] == "RUNNING"
        free_disk(c)
    until("it is written", lambda: cluster.execution("outlives")["status"] == "SUCCESS")
    assert cluster.execution("outlives")["attempt"] == 1
    alerts = "SELECT summary FROM cronledger.alerts WHERE event = 'runner_failing'"
    until("the failure is raised", lambda: cluster.rows(alerts))
    assert "No space left on device" in cluster.rows(alerts)[0]
    _goes_on(cluster)
    assert replica.events("lease_lost") == []
    assert len(replica.events("step_failed")) <= HANDFUL
    ran = Counter((m.job, m.plan_time) for m in cluster.marks("start"))
    assert set(ran.values()) == {1}


# -- the network -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [Proxy.half_open, Proxy.black_hole, Proxy.cut])
def test_answers_that_never_come(cluster: Cluster, spoil: Callable[[Proxy], None]) -> None:
    """`half_open`: what was sent may be committed, and the replica cannot know."""
    with Proxy(cluster.url) as proxy:
        replica = cluster.start("steady", url=proxy.dsn)
        until("it runs", lambda: len(cluster.executions("SUCCESS")) >= 4)
        spoil(proxy)
        # A busy machine may start nothing for seconds without the fault.
        until("nothing starts any more", lambda: _silent_for(cluster) > 10)
        proxy.heal()  # what hung is closed
        replica.event("database_unreachable")
        replica.event("database_recovered")
        _goes_on(cluster, 8)
        _assert_nothing_twice(cluster)


def _silent_for(cluster: Cluster) -> float:
    """Seconds since the last start."""
    return time.monotonic() - max(m.at for m in cluster.marks("start"))


# -- people ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_rolling_deploy_loses_and_repeats_nothing(cluster: Cluster) -> None:
    def start(app: str, deploy: int, name: str, wait: bool = True) -> Process:
        return cluster.start(
            app, wait=wait, deploy=deploy, source="ours", runner_id=f"{app}-{name}",
            environ={LEASE_VARIABLE: "60s"},  # no firing takes longer on a busy machine
        )  # fmt: skip

    olds = [start("before", 1, name, wait=False) for name in "ab"]
    until("all run", lambda: {m.job for m in cluster.marks("start")} >= {"stays", "leaves"})
    news = []
    for old, name in zip(olds, "ab", strict=True):
        news.append(start("after", 2, name))
        until("it runs too", partial(_runs, cluster, f"after-{name}"))
        old.popen.terminate()
        assert old.wait() == 0
    until("the new job runs", lambda: any(m.job == "arrives" for m in cluster.marks("start")))
    gone = cluster.rows("SELECT retired_at IS NOT NULL FROM cronledger.jobs WHERE name = 'leaves'")
    assert gone == [True]
    # One that missed the deploy starts late: its jobs stay what the newer deploy made them.
    late = start("before", 1, "late")
    late.event("source_refused")
    before = len(cluster.executions("SUCCESS"))
    until("all go on", lambda: len(cluster.executions("SUCCESS")) >= before + 9)
    last = max(m.at for m in cluster.marks("start") if m.job == "leaves")
    assert last < min(m.at for m in cluster.marks("start") if m.job == "arrives")
    for replica in (*news, late):
        replica.popen.terminate()
        assert replica.wait() == 0
        assert replica.events("step_failed") == []
    assert_every_plan_time_ran_once(cluster)


def _runs(cluster: Cluster, runner: str) -> bool:
    return any(row["runner_id"] == runner for row in cluster.executions())

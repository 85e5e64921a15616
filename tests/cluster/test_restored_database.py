"""Restored, cloned and promoted databases, with replicas as processes."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from cronledger.ledger.migrate import migrate
from tests.cluster.support.harness import Cluster
from tests.cluster.support.servers import OwnServer, Pair, stopping
from tests.database import Databases, fast_directory, scratch_directory
from tests.processes import CRONLEDGER, clean_environ
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.own_database]  # its database is copied


JOBS = """
[jobs.tick]
schedule = "@every 1s"
command = ["true"]
"""


def cli(url: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`cronledger` as a process, to its end."""
    return subprocess.run(
        [*CRONLEDGER, *arguments],
        cwd=directory, env={**clean_environ(), "CRONLEDGER_DATABASE_URL": url}, check=False,
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip


@contextmanager
def on(url: str, directory: Path) -> Iterator[Cluster]:
    made = Cluster(url, directory)
    try:
        yield made
    finally:
        made.close()
        print(made.report())


def test_run_ends_with_5_in_a_clone_until_it_is_accepted(
    database_url: str, databases: Databases, tmp_path: Path
) -> None:
    (tmp_path / "cronledger.toml").write_text(JOBS)
    with on(database_url, tmp_path) as original:
        replica = original.start("away")
        until("it runs", lambda: len(original.executions("SUCCESS")) >= 2)
        replica.popen.terminate()
        replica.wait()
    name = databases.clone(str(conninfo_to_dict(database_url)["dbname"]))
    url = databases.url(name)
    try:
        with psycopg.connect(url, autocommit=True) as clone:

            def jobs() -> list[str]:
                statement = "SELECT name FROM cronledger.jobs WHERE retired_at IS NULL ORDER BY 1"
                return [row[0] for row in clone.execute(statement).fetchall()]

            run = cli(url, tmp_path, "run")
            assert run.returncode == 5, run.stderr
            assert "this is not the database in which the ledger was created" in run.stderr
            assert "accept-database --skip-missed" in run.stderr
            assert jobs() == ["goes_on", "outlives"]  # its jobs were not applied
            migrated = cli(url, tmp_path, "migrate")
            assert (migrated.returncode, migrated.stdout) == (0, "")
            assert "Warning: this is not the database in which" in migrated.stderr
            assert cli(url, tmp_path, "run").returncode == 5
            assert cli(url, tmp_path, "accept-database").returncode == 2
            both = cli(url, tmp_path, "accept-database", "--skip-missed", "--catch-up")
            assert both.returncode == 2
            accepted = cli(url, tmp_path, "accept-database", "--skip-missed")
            assert accepted.returncode == 0, accepted.stderr
            assert (
                "accepted; it was a different database: the ledger belongs to the"
                in accepted.stdout
            )
            again = cli(url, tmp_path, "accept-database", "--skip-missed")
            assert (
                again.stdout == "this is already the database of the ledger; no job was changed\n"
            )
        with on(url, tmp_path) as cluster:
            before = len(cluster.executions())
            cluster.start("away", runner_id="clone")
            until("it runs", lambda: len(cluster.executions("SUCCESS")) >= before + 2)
            held = cluster.rows("SELECT reason, count FROM cronledger.skips ORDER BY 1 LIMIT 1")
            assert held[0][0] == "missed"
    finally:
        databases.drop(name)


def test_a_replica_that_runs_finishes_what_it_has_and_waits(
    cluster: Cluster, tmp_path: Path
) -> None:
    polling: dict[str, Any] = {"pgbouncer": True, "poll_interval": "300ms"}
    replica = cluster.start("away", runner_id="one", **polling)
    cluster.trigger("outlives")
    until("it runs", lambda: [m for m in cluster.marks("start") if m.job == "outlives"])
    cluster.rows("UPDATE cronledger.identity SET database_oid = 0 RETURNING 1")
    said = replica.event("other_database_found")
    assert "refused it at" in said["reason"]
    assert "accept-database" in said["remedy"]
    count = len(cluster.executions())
    until("it says so", lambda: cluster.rows("SELECT state FROM cronledger.runner_status")[0]
          == "refused")  # fmt: skip
    until("it ended", lambda: cluster.execution("outlives")["status"] == "SUCCESS")
    overdue = "SELECT reason FROM cronledger.overdue WHERE job_name = 'goes_on'"
    until("it is overdue", lambda: cluster.rows(overdue) == ["database"])
    assert len(cluster.executions()) == count
    assert len(replica.events("other_database_found")) == 1
    accepted = cli(cluster.url, tmp_path, "accept-database", "--catch-up")
    assert accepted.returncode == 0, accepted.stderr
    replica.event("database_accepted")
    until("it goes on", lambda: len(cluster.executions("SUCCESS")) >= count + 3)
    state: LiteralString = "SELECT state FROM cronledger.runner_status"
    until("its check-in says so", lambda: cluster.rows(state) == ["alive"])
    assert replica.events("step_failed") == []


@pytest.mark.skipif(Pair.missing() is not None, reason=Pair.missing() or "")
def test_a_promoted_copy_is_a_failover_only_if_a_runner_was_just_seen(tmp_path: Path) -> None:
    """Same system identifier, same oid: the timeline and the last heartbeats tell."""
    with (
        scratch_directory(fast_directory()) as directory,
        stopping(primary := OwnServer(directory / "a")) as url,
        stopping(copy := OwnServer(directory / "b")),
    ):
        migrate(url)
        with on(url, tmp_path) as original:
            replica = original.start("away", runner_id="one")
            until("it runs", lambda: original.executions("SUCCESS"))
            replica.popen.terminate()
            replica.wait()
        why = "SELECT cronledger_internal.other_database()"
        timeline = "SELECT timeline FROM cronledger.identity"
        seen: LiteralString = (
            "UPDATE cronledger.runners SET heartbeat_at = cronledger.db_now() - %s::interval"
        )
        for ago, other in (("9 min", False), ("11 min", True)):
            primary.sql(seen, ago)
            copy.stop("immediate")
            copy.follow(primary)
            with psycopg.connect(copy.start(), autocommit=True) as standing:
                assert standing.execute(why).fetchone() == (None,)  # on a standby
                copy.sql("SELECT pg_promote(true)")
                found = standing.execute(why).fetchone()
            assert (found is not None and found[0] is not None) is other
            assert (copy.sql(why)[0][0] is not None) is other
            assert copy.sql(timeline) == [(1,)]
            copy.sql(seen, ago)  # a busy machine may have taken long for this
            began = cli(copy.start(), tmp_path, "trigger", "outlives")
            assert began.returncode == 0, began.stderr
            with on(copy.start(), tmp_path) as cluster:
                started = cluster.start("away", wait=False, runner_id="two")
                if other:
                    started.popen.wait(90)
                    assert "OtherDatabaseError" in started.text()
                    assert cluster.execution("outlives")["status"] == "PENDING"
                else:
                    until(
                        "it goes on", lambda: cluster.execution("outlives")["status"] == "RUNNING"
                    )
                    assert copy.sql(timeline) == [(2,)]

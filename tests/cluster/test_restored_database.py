"""Restored, cloned and promoted databases, with replicas as processes."""

from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from cronledger.ledger.migrate import migrate
from tests.cluster.support.harness import cluster_on, cronledger
from tests.cluster.support.servers import OwnServer, Pair, stopping
from tests.database import Databases, fast_directory, scratch_directory
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.own_database]  # its database is copied


JOBS = """
[jobs.tick]
schedule = "@every 1s"
command = ["true"]
"""


def test_run_ends_with_5_in_a_clone_until_it_is_accepted(
    database_url: str, databases: Databases, tmp_path: Path
) -> None:
    (tmp_path / "cronledger.toml").write_text(JOBS)
    with cluster_on(database_url, tmp_path) as original:
        original.start("away")
        until("it runs", lambda: len(original.executions("SUCCESS")) >= 2)
        original.drain()
    name = databases.clone(str(conninfo_to_dict(database_url)["dbname"]))
    url = databases.url(name)
    try:
        with cluster_on(url, tmp_path) as clone:
            for _ in range(2):
                run = cronledger(url, tmp_path, "run")
                assert run.returncode == 5, run.stderr
                assert "this is not the database in which the ledger was created" in run.stderr
                assert "accept-database --skip-missed" in run.stderr
                jobs = clone.rows("SELECT name FROM cronledger.jobs ORDER BY 1")
                assert jobs == ["goes_on", "outlives"]  # its jobs were not applied
                migrated = cronledger(url, tmp_path, "migrate")
                assert (migrated.returncode, migrated.stdout) == (0, "")
                assert "Warning: this is not the database in which" in migrated.stderr
            accepted = cronledger(url, tmp_path, "accept-database", "--skip-missed")
            assert accepted.returncode == 0, accepted.stderr
            assert "accepted; it was a different database" in accepted.stdout
            again = cronledger(url, tmp_path, "accept-database", "--skip-missed")
            assert again.stdout.startswith("this is already the database of the ledger; no job")
            before = len(clone.executions())
            clone.start("away", runner_id="clone")
            until("it runs", lambda: len(clone.executions("SUCCESS")) >= before + 2)
            assert "missed" in clone.rows("SELECT reason FROM cronledger.skips")
    finally:
        databases.drop(name)


@pytest.mark.skipif(Pair.missing() is not None, reason=Pair.missing() or "")
def test_a_promoted_copy_is_a_failover_only_if_a_runner_was_just_seen(tmp_path: Path) -> None:
    """Same system identifier, same oid: the timeline and the last heartbeats tell."""
    with (
        scratch_directory(fast_directory()) as directory,
        stopping(primary := OwnServer(directory / "a")) as url,
        stopping(copy := OwnServer(directory / "b")),
    ):
        migrate(url)
        with cluster_on(url, tmp_path) as original:
            original.start("away", runner_id="one")
            until("it runs", lambda: original.executions("SUCCESS"))
            original.drain()
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
            began = cronledger(copy.start(), tmp_path, "trigger", "outlives")
            assert began.returncode == 0, began.stderr
            with cluster_on(copy.start(), tmp_path) as cluster:
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

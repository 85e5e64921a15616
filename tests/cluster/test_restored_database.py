"""Restored, cloned, copied and promoted databases."""

from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cronledger.ledger.migrate import migrate
from tests.cluster.support.harness import cluster_on, cronledger
from tests.cluster.support.servers import OwnServer, Pair, stopping
from tests.database import Databases, fast_directory, scratch_directory
from tests.waiting import until

JOBS = """
[jobs.tick]
schedule = "@every 1s"
command = ["true"]
"""


@pytest.mark.slow
@pytest.mark.own_database  # its database is copied
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


@pytest.mark.slow
@pytest.mark.skipif(Pair.missing() is not None, reason=Pair.missing() or "")
def test_a_promoted_copy_is_another_database_ten_minutes_after_the_last_runner(
    tmp_path: Path,
) -> None:
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
        why = "SELECT cronledger_internal.other_database() IS NOT NULL"
        primary.sql(
            "UPDATE cronledger.runners SET heartbeat_at = cronledger.db_now() - interval '11 min'"
        )
        copy.follow(primary)
        with psycopg.connect(copy.start(), autocommit=True) as standing:
            assert standing.execute(why).fetchone() == (False,)  # on a standby
            copy.sql("SELECT pg_promote(true)")
            assert standing.execute(why).fetchone() == (True,)
        assert copy.sql(why) == [(True,)]
        with cluster_on(copy.start(), tmp_path) as cluster:
            started = cluster.start("away", wait=False, runner_id="two")
            started.popen.wait(90)
            assert "OtherDatabaseError" in started.text()


JOB = "INSERT INTO cronledger.jobs (name, handler) VALUES ('job', 'external')"
ENQUEUE = "SELECT cronledger.enqueue('job')"
ALONE = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = 'cronledger'"


@pytest.mark.long
def test_no_id_is_given_twice_after_a_crash_of_an_accepted_copy(tmp_path: Path) -> None:
    """PostgreSQL repeats numbers of a copied sequence, unless it logs them in the copy first."""
    server = OwnServer(tmp_path / "s", settings={"fsync": "off"})
    with stopping(server):
        original = server.start()
        migrate(original)
        copy = make_conninfo(original, dbname="copy")
        _run(original, JOB, ENQUEUE)
        elsewhere = make_conninfo(original, dbname="postgres")
        _run(elsewhere, ALONE, "CREATE DATABASE copy TEMPLATE cronledger")
        _run(copy, "SELECT cronledger.accept_database(false)", ENQUEUE, ENQUEUE)
        server.stop("kill")
        server.start()
        _run(copy, ENQUEUE)
        with psycopg.connect(copy) as c:
            found = "SELECT count(*), count(DISTINCT id) FROM cronledger.executions"
            assert c.execute(found).fetchall() == [(4, 4)]


def _run(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as c:
        for statement in statements:
            c.execute(statement.encode())

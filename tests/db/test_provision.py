"""The tests' own databases: fresh for each test, gone with their run, never those of another."""

import psycopg
import pytest

from tests.database import Databases
from tests.waiting import until

pytestmark = pytest.mark.tools


def _names(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT datname FROM pg_database").fetchall()
        return {name for (name,) in rows}


def _sessions(dsn: str, pid: int) -> int:
    """Return how many sessions have this server process: 0 once its locks are released."""
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [pid]).rowcount


@pytest.fixture
def maintenance(databases: Databases, empty_database_url: str) -> str:
    """A database of our own as the maintenance database: its runs are apart from all others."""
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    return empty_database_url


def test_a_dead_runs_databases_are_dropped_and_a_live_ones_are_not(maintenance: str) -> None:
    with Databases(maintenance, "live") as live:
        kept = live.create()
        dead = Databases(maintenance, "dead")
        dead.__enter__()
        left = dead.create()
        with Databases(maintenance, "a third"):
            assert {kept, left} <= _names(maintenance)
        killed = dead._connection
        pid = killed.info.backend_pid
        killed.close()  # all that a kill -9 does, seen from the server
        until("its session has ended", lambda: not _sessions(maintenance, pid))
        with Databases(maintenance, "a third"):
            names = _names(maintenance)
            assert kept in names
            assert left not in names
    assert kept not in _names(maintenance)


def test_the_first_of_a_runs_two_workers_to_end_leaves_the_others_databases(
    maintenance: str,
) -> None:
    with Databases(maintenance, "run") as second:
        with Databases(maintenance, "run") as first:
            template = first.template()
            assert second.template() == template
        clone = second.create(template)
        with psycopg.connect(second.url(clone)) as connection:
            found = connection.execute("SELECT to_regclass('cronledger.jobs') IS NOT NULL")
            assert found.fetchone() == (True,)
        with pytest.raises(psycopg.OperationalError, match="not currently accepting connections"):
            psycopg.connect(second.url(template))
    assert not {template, clone} & _names(maintenance)


def test_a_connection_that_the_server_ended_is_replaced(maintenance: str) -> None:
    with (
        psycopg.connect(maintenance, autocommit=True) as other,
        Databases(maintenance, "ended") as run,
    ):
        first = run.create()
        pid = run._connection.info.backend_pid
        other.execute("SELECT pg_terminate_backend(%s)", [pid])
        until("the server has ended it", lambda: not _sessions(maintenance, pid))
        second = run.create()
        with Databases(maintenance, "another"):
            assert {first, second} <= _names(maintenance)
        run.drop(first)
        assert first not in _names(maintenance)

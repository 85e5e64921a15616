"""The tests' own databases: fresh for each test, gone with their run, never those of another."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tests.database import _TEMPLATE_LOCK, Databases, docker_answers
from tests.waiting import PATIENCE, until

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


class _Interrupted(BaseException):
    """As pytest-timeout interrupts: from a signal handler, past every `except Exception`."""


@contextmanager
def _interrupted_when(ready: Callable[[], bool]) -> Iterator[None]:
    """The body is interrupted once `ready`, which another thread asks."""
    seen: list[bool] = []

    def watch() -> None:
        with suppress(AssertionError):
            seen.append(until("it waits", ready))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def interrupt(*_: object) -> None:
        raise _Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=watch)
    try:
        with pytest.raises(_Interrupted):
            thread.start()
            yield
        assert seen
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_test_interrupted_while_it_waited_costs_the_next_one_nothing(maintenance: str) -> None:
    with (
        psycopg.connect(maintenance, autocommit=True) as other,
        Databases(maintenance, "interrupted") as run,
    ):
        other.execute("SELECT pg_advisory_lock(%s, %s)", _TEMPLATE_LOCK)

        def waiting() -> int:
            row = other.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                " AND (classid, objid) = (%s, %s) AND database ="
                " (SELECT oid FROM pg_database WHERE datname = current_database())",
                _TEMPLATE_LOCK,
            ).fetchone()
            assert row is not None
            return int(row[0])

        with _interrupted_when(lambda: waiting() == 1):
            run.template()
        first = run.create()
        assert waiting() == 0
        other.execute("SELECT pg_advisory_unlock(%s, %s)", _TEMPLATE_LOCK)
        second = run.create(run.template())
        with Databases(maintenance, "another"):  # drops what belongs to runs that are over
            assert {first, second} <= _names(maintenance)


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


def test_a_docker_engine_counts_if_it_answers_its_ping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    monkeypatch.delenv("DOCKER_TLS_VERIFY", raising=False)
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(tmp_path / "docker.sock"))
        engine.listen()
        assert not docker_answers(seconds=0.05)
        engine.accept()[0].close()

        def answer(status: bytes) -> None:
            connection, _ = engine.accept()
            with connection:
                assert connection.recv(1024).startswith(b"GET /_ping ")
                connection.sendall(b"HTTP/1.0 " + status + b"\r\n\r\n")

        for status, verdict in ((b"200 OK", True), (b"500 Internal Server Error", False)):
            thread = threading.Thread(target=answer, args=[status])
            thread.start()
            assert docker_answers(seconds=PATIENCE) is verdict
            thread.join()
    assert not docker_answers()

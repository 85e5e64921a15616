"""The tests' own databases: fresh for each test, gone with their run, never those of another."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.database import Databases, docker_answers


def _names(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT datname FROM pg_database").fetchall()
        return {name for (name,) in rows}


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
        dead._connection.close()  # all that a kill -9 does, seen from the server
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


def test_a_database_somebody_is_still_connected_to_is_dropped(
    databases: Databases, maintenance: str
) -> None:
    name = databases.create()
    with psycopg.connect(databases.url(name)) as connection:
        databases.drop(name)
        assert name not in _names(maintenance)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "docker.sock"))
        listening.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
        monkeypatch.delenv("DOCKER_TLS_VERIFY", raising=False)
        yield listening


@pytest.mark.parametrize(
    ("status", "verdict"), [(b"200 OK", True), (b"500 Internal Server Error", False)]
)
def test_an_engine_counts_when_it_answers_its_ping(
    engine: socket.socket, status: bytes, verdict: bool
) -> None:
    def answer() -> None:
        connection, _ = engine.accept()
        with connection:
            assert connection.recv(1024).startswith(b"GET /_ping ")
            connection.sendall(b"HTTP/1.0 " + status + b"\r\n\r\n")

    thread = threading.Thread(target=answer)
    thread.start()
    assert docker_answers() is verdict
    thread.join()


def test_an_engine_that_is_silent_or_absent_does_not_count(engine: socket.socket) -> None:
    assert not docker_answers(seconds=0.05)
    engine.close()
    assert not docker_answers()

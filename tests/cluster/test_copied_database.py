"""A ledger that `CREATE DATABASE … TEMPLATE` has copied, on a server that crashes soon after."""

from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cronledger.ledger.migrate import migrate
from tests.cluster.support.servers import OwnServer, stopping

pytestmark = pytest.mark.long

JOB = """
INSERT INTO cronledger.jobs (name, handler, target) VALUES ('job', 'external', '{}')
"""
ENQUEUE = "SELECT cronledger.enqueue('job')"
ALONE = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = 'cronledger'"


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

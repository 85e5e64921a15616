"""A server that may forget what it committed forgets nothing that the ledger acknowledged."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cronledger.ledger.migrate import migrate
from tests.cluster.support.servers import OwnServer, stopping
from tests.database import fast_directory, scratch_directory

pytestmark = pytest.mark.slow


FORGETFUL = {"synchronous_commit": "off", "wal_writer_delay": "10s"}


@pytest.fixture
def server() -> Iterator[OwnServer]:
    with scratch_directory(fast_directory()) as directory:
        own = OwnServer(Path(directory) / "forgetful", settings=FORGETFUL)
        with stopping(own):
            migrate(own.start())
            own.sql("CREATE TABLE public.plain (id integer)")
            own.sql(
                "INSERT INTO cronledger.jobs (name, handler, overlap) VALUES ('job', 'external',"
                " 'allow')"
            )
            yield own


def _freeze_writers(c: psycopg.Connection) -> None:
    """Nothing but commits flushes WAL from now on: on a busy machine the others would have time to
    flush all of it before the crash."""
    rows = c.execute(
        "SELECT pid FROM pg_stat_activity WHERE backend_type IN"
        " ('walwriter', 'background writer', 'checkpointer', 'autovacuum launcher')"
    ).fetchall()
    assert rows
    for (pid,) in rows:
        os.kill(pid, signal.SIGSTOP)


def test_what_was_acknowledged_survives_a_crash_with_synchronous_commit_off(
    server: OwnServer,
) -> None:
    calls, plain = 4, 50
    with psycopg.connect(server.start(), autocommit=True) as c:
        for _ in range(calls):
            c.execute("SELECT cronledger.enqueue('job')")
        held = c.execute(
            "SELECT id, lease_token FROM cronledger.claim_next('default', 'worker', 2)"
        ).fetchall()
        c.execute("SELECT cronledger.finish(%s, %s)", held[0])
        c.execute("SELECT cronledger.pause('job')")
        _freeze_writers(c)
        for id in range(plain):  # what no table of the ledger holds
            c.execute("INSERT INTO public.plain VALUES (%s)", [id])
        server.stop("kill")
    ((left,),) = server.sql("SELECT count(*) FROM public.plain")
    assert left < plain, "this server forgets"
    assert server.sql(
        "SELECT status, count(*) FROM cronledger.executions GROUP BY 1 ORDER BY 1"
    ) == [("PENDING", 2), ("RUNNING", 1), ("SUCCESS", 1)]
    assert server.sql("SELECT paused_at IS NOT NULL FROM cronledger.jobs") == [(True,)]
    assert server.sql("SELECT max(revision) FROM cronledger.job_revisions") == [(2,)]

"""A statement that was interrupted at a place in a function, and is then cancelled."""

import threading
import time

import psycopg
import pytest

from tests.simulation.support.backend import Database

pytestmark = pytest.mark.tools

TIMES = 300
"""Of 3,000 such races, 207 left the lock behind while it was one of the session."""


def test_a_cancelled_statement_leaves_no_lock_at_its_place(simulated: Database) -> None:
    """A lock that stays would block the simulator itself at the next interruption."""
    with psycopg.connect(simulated.url, autocommit=True) as session:
        session.execute("SELECT set_config('sim.place', 'here', false)")
        pid = session.info.backend_pid
        for time_ in range(TIMES):
            simulated.eye.execute("SELECT pg_advisory_lock(0, %s)", (pid,))
            session.pgconn.send_query(b"SELECT cronledger_internal.between_statements('here')")
            _wait_until_blocked(simulated, pid)
            cancel = threading.Thread(target=session.cancel_safe)
            cancel.start()
            time.sleep(time_ % 30 / 10_000)  # the cancel comes before, with, or after the lock
            simulated.eye.execute("SELECT pg_advisory_unlock(0, %s)", (pid,))
            cancel.join()
            while session.pgconn.get_result():
                pass
            left = simulated.eye.execute(
                "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = %s", (pid,)
            ).fetchone()
            assert left is None


def _wait_until_blocked(database: Database, pid: int) -> None:
    blocked = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
    while database.eye.execute(blocked, (pid,)).fetchone() != (True,):
        time.sleep(0.0001)

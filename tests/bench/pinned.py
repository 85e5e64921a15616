"""300 schedules that are due each second, while a session stays idle in a transaction.

The session has a snapshot and a transaction id, so no dead version can be removed meanwhile.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.bench.bench import Bench
from tests.bench.ledger import Ledger, new_ledger
from tests.bench.usage import Usage

SCHEDULES = 300
SLOTS = 1_000
MINUTE = 60

_DEAD = """
SELECT relname AS table, n_dead_tup AS dead FROM pg_stat_user_tables
WHERE schemaname = 'cronledger' AND n_dead_tup > 0 ORDER BY n_dead_tup DESC LIMIT 5
"""


def measure(bench: Bench) -> dict[str, Any]:
    """Return for each minute the p99 of the lateness in milliseconds and the CPU time of each
    execution in microseconds, of replica and server; and the tables with the most dead versions.
    """
    assert bench.form.pinned_minutes is not None
    with new_ledger(bench.server) as ledger:
        ledger.declare("each-second", "* * * * * *", scopes=SCHEDULES)
        with ledger.product.replica(ledger.dsn, SLOTS) as pid:
            ledger.wait_for("(SELECT count(*) FROM cronledger.executions) > 3000")
            with pinned_horizon(ledger.dsn):
                minutes = [_minute(ledger, pid) for _ in range(bench.form.pinned_minutes)]
                dead = ledger.connection.execute(_DEAD).fetchall()
            ledger.one("SELECT cronledger.pause('each-second')")
    return {
        "due_each_second": SCHEDULES,
        "p99": [round(minute["p99"], 1) for minute in minutes],
        "cpu_us": [round(minute["cpu_us"], 1) for minute in minutes],
        "dead": {row["table"]: row["dead"] for row in dead},
    }


@contextmanager
def pinned_horizon(dsn: str) -> Iterator[None]:
    """Keep a session idle in a transaction, with a snapshot and a transaction id."""
    with psycopg.connect(dsn) as c:
        c.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        c.execute("SELECT pg_current_xact_id()")
        yield


def _minute(ledger: Ledger, pid: int) -> dict[str, float]:
    since = ledger.one("SELECT cronledger.db_now() AS now")["now"]
    before = Usage.until_now([pid], ledger.connection)
    time.sleep(MINUTE)
    usage = Usage.until_now([pid], ledger.connection).since(before)
    until = ledger.one("SELECT cronledger.db_now() - interval '2 s' AS at")["at"]
    row = ledger.lateness(since, until)
    if not row["executions"]:
        raise RuntimeError("no execution started within a minute")
    cpu = usage.client + usage.server
    return {"p99": row["p99"], "cpu_us": 1e6 * cpu / (SCHEDULES * MINUTE)}

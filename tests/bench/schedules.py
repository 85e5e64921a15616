"""1,000,000 schedules of which 500 are due each second.

A job fires twice an hour, each of 1,800 jobs at a second of its own, and nine tenths of the
schedules are scopes of these jobs. So each second another job is due, with all of its scopes.
"""

import time
from typing import Any

from tests.bench.bench import Bench
from tests.bench.idle import declare_sleeping, wait_until_planned
from tests.bench.ledger import Ledger, new_ledger
from tests.bench.usage import Usage

JOBS = 1_800
SLOTS = 1_000

LATENESS = """
SELECT count(*) AS executions, count(DISTINCT due_at) AS seconds,
       (percentile_cont(0.5) WITHIN GROUP (ORDER BY l))::float8 AS p50,
       (percentile_cont(0.99) WITHIN GROUP (ORDER BY l))::float8 AS p99, max(l)::float8 AS max
FROM (SELECT due_at, 1000 * extract(epoch FROM started_at - due_at) AS l
      FROM cronledger.executions WHERE due_at > %(since)s) x
"""


def measure(bench: Bench) -> dict[str, Any]:
    """Return the lateness in milliseconds, and the CPU time of each execution."""
    assert bench.form.schedules is not None
    due = bench.form.schedules * 9 // 10 // JOBS
    with new_ledger(bench.server, verify=False) as ledger:
        declare_sleeping(ledger, bench.form.schedules - due * JOBS)
        _declare_waking(ledger, due)
        with ledger.product.replica(ledger.dsn, SLOTS) as pid:
            began = time.monotonic()
            wait_until_planned(ledger)
            planned = time.monotonic() - began
            ledger.settle()
            before = Usage.until_now([pid], ledger.connection)
            since = ledger.one("SELECT cronledger.db_now() AS now")["now"]
            time.sleep(bench.form.schedules_seconds)
            usage = Usage.until_now([pid], ledger.connection).since(before)
        row = ledger.one(LATENESS, since=since)
        if row["seconds"] < bench.form.schedules_seconds - 2:  # the first and the last are cut off
            raise RuntimeError(f"in only {row['seconds']} seconds something started")
        # Those that were due; the others are too many to compare one by one.
        jobs = ledger.connection.execute(
            "SELECT DISTINCT job_name FROM cronledger.executions WHERE due_at > %s", [since]
        ).fetchall()
        ledger.product.verify(ledger.dsn, [job["job_name"] for job in jobs])
    return {
        "schedules": bench.form.schedules,
        "due_each_second": due,
        "seconds_to_plan_all": round(planned, 1),
        "executions": row["executions"],
        "seconds": row["seconds"],
        "p50": round(row["p50"], 1),
        "p99": round(row["p99"], 1),
        "max": round(row["max"], 1),
        "client_us": round(1e6 * usage.client / row["executions"], 1),
        "server_us": round(1e6 * usage.server / row["executions"], 1),
    }


def _declare_waking(ledger: Ledger, scopes: int) -> None:
    """Declare 1,800 jobs with so many scopes each, one for each second of half an hour."""
    for job in range(JOBS):
        minute, second = divmod(job, 60)
        ledger.declare(
            f"waking-{job:04}", f"{second} {minute},{minute + 30} * * * *", scopes=scopes
        )

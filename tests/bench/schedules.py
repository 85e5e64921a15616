"""1,000,000 schedules of which 1,000 are due each second.

A job fires four times an hour, each of 900 jobs at a second of its own, and nine tenths of the
schedules are scopes of these jobs. So each second another job is due, with all of its scopes.
"""

import time
from datetime import timedelta
from typing import Any

from tests.bench.bench import Bench
from tests.bench.idle import declare_sleeping, wait_until_planned
from tests.bench.ledger import Ledger, new_ledger
from tests.bench.usage import Usage

JOBS = 900
SLOTS = 1_000

MINUTE = timedelta(minutes=1)


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
        row = ledger.lateness(since)
        minutes = [
            ledger.lateness(since + n * MINUTE, since + (n + 1) * MINUTE)["p99"]
            for n in range(max(1, bench.form.schedules_seconds // 60))
        ]
        if row["seconds"] < bench.form.schedules_seconds - 2:  # the first and the last are cut off
            raise RuntimeError(f"in only {row['seconds']} seconds something started")
        # A tenth of those that were due: each takes a process, and the others are too many.
        jobs = ledger.connection.execute(
            "SELECT DISTINCT job_name FROM cronledger.executions WHERE due_at > %s", [since]
        ).fetchall()
        ledger.product.verify(ledger.dsn, [job["job_name"] for job in jobs[::10]])
    return {
        "schedules": bench.form.schedules,
        "due_each_second": due,
        "seconds_to_plan_all": round(planned, 1),
        **{name: round(value, 1) for name, value in row.items()},
        "p99_each_minute": [round(p99, 1) for p99 in minutes],
        "client_us": round(1e6 * usage.client / row["executions"], 1),
        "server_us": round(1e6 * usage.server / row["executions"], 1),
    }


def _declare_waking(ledger: Ledger, scopes: int) -> None:
    """Declare 900 jobs with so many scopes each, one for each second of a quarter of an hour."""
    for job in range(JOBS):
        minute, second = divmod(job, 60)
        ledger.declare(f"waking-{job:04}", f"{second} {minute}-59/15 * * * *", scopes=scopes)

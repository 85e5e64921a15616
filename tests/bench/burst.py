"""Many schedules that are due at one instant, through one and through four replicas."""

from contextlib import ExitStack
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from tests.bench.bench import Bench
from tests.bench.floor import measure_floor
from tests.bench.ledger import Ledger, new_ledger

SLOTS = 10_000

STARTS = """
SELECT count(*) AS rows, max(extract(epoch FROM started_at - due_at))::float8 AS last,
       max(extract(epoch FROM finished_at - due_at))::float8 AS finished,
       percentile_cont(ARRAY[0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]) WITHIN GROUP
           (ORDER BY extract(epoch FROM started_at - due_at)) AS tenths
FROM cronledger.executions
"""

# Cheap to ask: each part reads one entry of an index.
ENDED = """
cronledger.db_now() > %(at)s
AND NOT EXISTS (SELECT FROM cronledger.schedules WHERE queue = 'default' AND next_due_at <= %(at)s)
AND NOT EXISTS (SELECT FROM cronledger.executions WHERE status = 'RUNNING')
"""


def measure(bench: Bench) -> dict[str, Any]:
    """Return, by the number of replicas, the seconds from the instant to the last start and end;
    and `floor`, the seconds that the INSERTs of as many rows take alone.
    """
    form = bench.form
    found: dict[str, Any] = {"schedules": form.burst, "floor": 0.0, "replicas": {}}
    floors = [measure_floor(bench.server, form.burst).insert_seconds for _ in range(form.repeats)]
    found["floor"] = round(median(floors), 3)
    for replicas in form.burst_replicas:
        runs = [_burst(bench, replicas) for _ in range(form.repeats)]
        found["replicas"][str(replicas)] = {
            "last": round(median(run["last"] for run in runs), 3),
            "lasts": [round(run["last"], 3) for run in runs],
            "finished": round(median(run["finished"] for run in runs), 3),
            "tenths": [round(tenth, 4) for tenth in runs[0]["tenths"]],
        }
    return found


def _burst(bench: Bench, replicas: int) -> dict[str, Any]:
    schedules = bench.form.burst
    with new_ledger(bench.server) as ledger:
        with ExitStack() as running:
            for _ in range(replicas):
                running.enter_context(ledger.product.replica(ledger.dsn, SLOTS))
            at = _declare(ledger, schedules, bench.form.burst_ahead)
            ledger.wait_for(ENDED, at=at)
        row = ledger.one(STARTS)
        if row["rows"] != schedules:
            raise RuntimeError(f"{schedules} schedules were due, {row['rows']} executions ran")
        return row


def _declare(ledger: Ledger, schedules: int, ahead: int) -> datetime:
    """Declare a job that is due in `ahead` seconds, and return the instant.

    Its schedules are planned by then. Raises RuntimeError if that takes longer.
    """
    now: datetime = ledger.one("SELECT date_trunc('second', cronledger.db_now()) AS now")["now"]
    at = now + timedelta(seconds=ahead)
    ledger.declare("burst", f"{at.second} {at.minute} {at.hour} * * *", scopes=schedules)
    ledger.wait_for(
        "NOT EXISTS (SELECT FROM cronledger.schedules WHERE next_due_at < %(at)s)", at=at
    )
    if ledger.one("SELECT cronledger.db_clock() >= %(at)s AS late", at=at)["late"]:
        raise RuntimeError(f"{schedules} schedules were not planned within {ahead} s")
    return at

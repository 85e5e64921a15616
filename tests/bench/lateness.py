"""Lateness of a job that fires each second, on a replica that has nothing else to do."""

import tempfile
import time
from datetime import timedelta
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tests.bench.bench import Bench
from tests.bench.ledger import Ledger, new_ledger

SLOTS = 10
WARM_UP = 2
"""Firings that do not count, because connections and plans are new."""

ENOUGH = "(SELECT count(*) FROM cronledger.executions) >= %(least)s"
"""A quantile needs two firings that count. A busy replica may be late with the last ones."""
STARTS = """
SELECT round(1000 * extract(epoch FROM started_at - due_at)::numeric, 3)::float8 AS ms
FROM cronledger.executions WHERE due_at > %(since)s ORDER BY due_at
"""


def measure(bench: Bench) -> dict[str, Any]:
    """Return `start`, started_at - due_at of each firing in milliseconds; `called`, the time from
    due_at to the call of the handler; and `floor`, that of a session which only sleeps until then.
    """
    with new_ledger(bench.server) as ledger, tempfile.TemporaryDirectory() as directory:
        calls = Path(directory) / "calls"
        with ledger.product.replica(ledger.dsn, SLOTS, "--calls", str(calls)):
            ledger.declare("second", "* * * * * *")
            time.sleep(bench.form.lateness_seconds)
            ledger.wait_for(ENOUGH, least=WARM_UP + 2)
            ledger.one("SELECT cronledger.pause('second')")
        first = ledger.one("SELECT min(due_at) AS at FROM cronledger.executions")["at"]
        since = first + timedelta(seconds=WARM_UP - 1)
        starts = [row["ms"] for row in ledger.connection.execute(STARTS, {"since": since})]
        called = [1000 * (at % 1) for at in map(float, calls.read_text().split()[WARM_UP:])]
        return {
            "start": _described(starts),
            "called": _described(called),
            "floor": _described(_floor(ledger, bench.form.lateness_seconds // 10 + 2)),
            "starts": starts,
        }


def _described(values: list[float]) -> dict[str, float]:
    return {
        "p50": round(median(values), 2),
        "p99": round(quantiles(values, n=100, method="inclusive")[98], 2),
        "max": round(max(values), 2),
        "count": len(values),
    }


def _floor(ledger: Ledger, samples: int) -> list[float]:
    """Return how late the next statement of a session begins that slept until a whole second."""
    return [
        1000 * float(ledger.one(_LATE, instant=ledger.one(_SLEEP)["instant"])["late"])
        for _ in range(samples)
    ]


_SLEEP = """
SELECT date_trunc('second', statement_timestamp()) + interval '1 s' AS instant,
       pg_sleep(1 - mod(extract(epoch FROM statement_timestamp())::numeric, 1))
"""
_LATE = "SELECT extract(epoch FROM statement_timestamp() - %(instant)s) AS late"

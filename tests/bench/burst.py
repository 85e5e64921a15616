"""Many schedules that are due at one instant, through one and through four replicas."""

from contextlib import ExitStack
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from tests.bench.bench import Bench
from tests.bench.floor import measure_floor
from tests.bench.ledger import Ledger, new_ledger
from tests.bench.sample import Json, ratio

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
NOTICED = "NOT EXISTS (SELECT FROM cronledger_internal.analyzed_while_empty())"


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


def measure_analyzed(bench: Bench) -> dict[str, Any]:
    """Return the seconds to the last start through one replica in an ordinary ledger, and in one
    that was analyzed while it was empty; and the ratio of both, pair by pair.
    """
    pairs = [(_burst(bench, 1), _burst(bench, 1, analyzed=True)) for _ in range(bench.form.repeats)]
    usual, analyzed = zip(*pairs, strict=True)
    return {
        "schedules": bench.form.burst,
        "usual": [round(run["last"], 3) for run in usual],
        "analyzed": [round(run["last"], 3) for run in analyzed],
        "ratio": round(ratio(analyzed, usual, _last), 2),
    }


def _last(run: Json) -> float:
    return run["last"]


def _burst(bench: Bench, replicas: int, *, analyzed: bool = False) -> dict[str, Any]:
    """Return when the schedules started. `analyzed`: somebody analyzes the empty ledger before,
    and the replica has noticed it.
    """
    schedules = bench.form.burst
    with new_ledger(bench.server) as ledger:
        with ExitStack() as running:
            for _ in range(replicas):
                running.enter_context(ledger.product.replica(ledger.dsn, SLOTS))
            if analyzed:
                ledger.connection.execute("VACUUM (ANALYZE)")
                ledger.wait_for(NOTICED)
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

"""Ledgers of up to 10,000,000 schedules, of which 1,000 are due each second.

A job fires four times an hour, each of 900 jobs at a second of its own, and each of its scopes is a
schedule. So each second another job is due, with all of its scopes. All other schedules are due in
half a year. In a small ledger, ten jobs fire each ten seconds.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from tests.bench.bench import Bench
from tests.bench.idle import declare_sleeping, wait_until_planned
from tests.bench.ledger import Ledger, new_ledger
from tests.bench.usage import Usage

QUARTER_HOUR, TEN_SECONDS = 900, 10
"""Numbers of jobs, one for each second in which one fires."""
SLOTS = 1_000
PLANNED_BY_REPLICAS = 1_000_000
"""In a ledger with more, an UPDATE plans those that sleep: a replica would take an hour."""
SPARE_BYTES = 20_000_000_000
"""For the WAL and temporary files."""

MINUTE = timedelta(minutes=1)

_PLANNED = """
UPDATE cronledger.schedules s
SET planned_through = cronledger.db_now(), planned_revision = j.revision, woken = false,
    next_plan_time = cronledger.db_now() + interval '180 days',
    next_due_at = cronledger.db_now() + interval '180 days'
FROM cronledger.jobs j
WHERE j.name = s.job_name AND j.name = %s
"""


def measure(bench: Bench) -> dict[str, Any]:
    """Return for each ledger its size, and by the number of replicas the lateness in milliseconds
    and the CPU time of each execution.

    `schedules`: those that were declared, which are fewer if the disk has no room for more.
    """
    assert bench.form.loads is not None
    return {
        "due_each_second": bench.form.due_each_second,
        "ledgers": {
            str(schedules): _load(bench, schedules, replicas)
            for schedules, replicas in bench.form.loads.items()
        },
    }


def _load(bench: Bench, schedules: int, replicas: Sequence[int]) -> dict[str, Any]:
    due = bench.form.due_each_second
    jobs = QUARTER_HOUR if schedules >= QUARTER_HOUR * due else TEN_SECONDS
    with new_ledger(bench.server, verify=False) as ledger:
        declared = jobs * due + declare_sleeping(
            ledger, schedules - jobs * due, lambda: _has_room(bench, ledger)
        )
        if schedules > PLANNED_BY_REPLICAS:
            for job in ledger.connection.execute("SELECT name FROM cronledger.jobs").fetchall():
                ledger.connection.execute(_PLANNED, [job["name"]])
            ledger.connection.execute("VACUUM (ANALYZE) cronledger.schedules")
        for name, schedule in _waking(jobs):
            ledger.declare(name, schedule, scopes=due)
        first = ledger.one("SELECT cronledger.db_now() AS now")["now"]
        found: dict[str, Any] = {"schedules": declared, "replicas": {}}
        with ExitStack() as running:
            pids: list[int] = []
            for count in replicas:
                while len(pids) < count:
                    pids.append(running.enter_context(ledger.product.replica(ledger.dsn, SLOTS)))
                began = time.monotonic()
                wait_until_planned(ledger)
                found.setdefault("seconds_to_plan_all", round(time.monotonic() - began, 1))
                ledger.settle()
                found["replicas"][str(count)] = _fire(bench, ledger, pids)
        found["bytes"] = ledger.one("SELECT pg_database_size(current_database()) AS n")["n"]
        # A tenth of those that were due: each takes a process, and the others are too many.
        fired = ledger.connection.execute(
            "SELECT DISTINCT job_name FROM cronledger.executions WHERE due_at > %s ORDER BY 1",
            [first],
        ).fetchall()
        ledger.product.verify(ledger.dsn, [job["job_name"] for job in fired[::10]])
    return found


def _fire(bench: Bench, ledger: Ledger, pids: Sequence[int]) -> dict[str, Any]:
    """Return the lateness and the CPU time of these replicas from now on.

    Raises RuntimeError if executions are missing.
    """
    seconds, due = bench.form.schedules_seconds, bench.form.due_each_second
    before = Usage.until_now(pids, ledger.connection)
    since = ledger.one("SELECT cronledger.db_now() AS now")["now"]
    time.sleep(seconds)
    usage = Usage.until_now(pids, ledger.connection).since(before)
    row = ledger.lateness(since)
    minutes = [
        ledger.lateness(since + n * MINUTE, since + (n + 1) * MINUTE)["p99"]
        for n in range(max(1, seconds // 60))
    ]
    least = due * (seconds - 2)  # the first and the last second are cut off
    if row["executions"] < least:
        raise RuntimeError(f"{row['executions']} executions started, at least {least} were due")
    return {
        **{name: round(value, 1) for name, value in row.items()},
        "p99_each_minute": [round(p99, 1) for p99 in minutes],
        "client_us": round(1e6 * usage.client / row["executions"], 1),
        "server_us": round(1e6 * usage.server / row["executions"], 1),
    }


def _has_room(bench: Bench, ledger: Ledger) -> bool:
    """Return whether the disk has room for planning the declared schedules, which writes each of
    them again."""
    size = ledger.one("SELECT pg_database_size(current_database()) AS n")["n"]
    return bool(shutil.disk_usage(bench.server.log.parent).free > 2 * size + SPARE_BYTES)


def _waking(jobs: int) -> Iterator[tuple[str, str]]:
    """Yield the jobs, one for each second of the period, with their schedules."""
    for job in range(jobs):
        minute, second = divmod(job, 60)
        minutes = f"{minute}-59/15" if jobs == QUARTER_HOUR else "*"
        seconds = f"{second}" if jobs == QUARTER_HOUR else f"{second}-59/{jobs}"
        yield f"waking-{job:04}", f"{seconds} {minutes} * * * *"

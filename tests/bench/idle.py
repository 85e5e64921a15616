"""A replica with nothing to do, on 10 schedules and on 1,000,000: its statements, its memory, and
its CPU time with that of its sessions.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import psutil

from tests.bench.bench import Bench
from tests.bench.ledger import Ledger, new_ledger
from tests.bench.usage import processor_seconds

FEW = 10
SLOTS = 10
MOST_SECONDS_OF_MANY = 180
"""How long a ledger is observed that is not the one with 10 schedules."""
HOUR = 3_600
SCOPES_OF_A_JOB = 5_000
CONTROL = ("BEGIN", "COMMIT", "ROLLBACK")
"""Statements that only begin or end a transaction."""

_LOGGED = re.compile(r"^(\S+) LOG:  (?:statement|execute [^:]*): (.*)")
_SETTLED_SECONDS = 5
_SESSIONS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


def measure(bench: Bench) -> dict[str, Any]:
    """Return, by the number of schedules, statements per second, resident bytes and seconds of CPU
    time per hour, extrapolated from the `seconds` of the observation."""
    sizes = [FEW] + ([bench.form.schedules] if bench.form.schedules else [])
    seconds = bench.form.idle_seconds
    return {
        str(n): _idle(bench, n, seconds if n == FEW else min(seconds, MOST_SECONDS_OF_MANY))
        for n in sizes
    }


def _idle(bench: Bench, schedules: int, seconds: int) -> dict[str, Any]:
    with new_ledger(bench.server, verify=False) as ledger:  # nothing runs
        declare_sleeping(ledger, schedules)
        with ledger.product.replica(ledger.dsn, SLOTS):
            wait_until_planned(ledger)
        ledger.settle()
        name = ledger.connection.info.dbname
        size = ledger.one("SELECT pg_database_size(current_database()) AS bytes")["bytes"]
        ledger.connection.execute(f"ALTER DATABASE {name} SET log_statement = 'all'".encode())
        with ledger.product.replica(ledger.dsn, SLOTS) as pid:
            time.sleep(_SETTLED_SECONDS)
            position = bench.server.log.stat().st_size
            sessions = ledger.connection.execute(_SESSIONS).fetchall()
            pids = [pid, *(session["pid"] for session in sessions)]
            before = processor_seconds(pids)
            time.sleep(seconds)
            used = processor_seconds(pids) - before
            with bench.server.log.open("rb") as log:
                log.seek(position)
                text = log.read().decode("utf-8", "replace")
            memory = psutil.Process(pid).memory_info().rss
    statements = count_statements(name, text.splitlines())
    control = sum(n for text, n in statements.items() if text.startswith(CONTROL))
    return {
        "seconds": seconds,
        "cpu_seconds_per_hour": round(HOUR * used / seconds, 2),
        "statements_per_second": round((statements.total() - control) / seconds, 3),
        "control_per_second": round(control / seconds, 3),
        "statements": dict(statements.most_common()),
        "resident_bytes": memory,
        "ledger_bytes": size,
    }


def count_statements(database: str, lines: Iterable[str]) -> Counter[str]:
    """Return the statements of clients of a database in the server's log, by their first line."""
    found = (_LOGGED.match(line) for line in lines)
    return Counter(match[2].strip()[:100] for match in found if match and match[1] == database)


def declare_sleeping(
    ledger: Ledger, schedules: int, has_room: Callable[[], bool] = lambda: True
) -> int:
    """Declare jobs with so many schedules in all, which are due in half a year.

    Return how many were declared: fewer if there was no room for more.
    """
    row = ledger.one("SELECT cronledger.db_now() + interval '180 days' AS at")
    schedule = f"0 0 {row['at'].day} {row['at'].month} *"
    for first in range(0, schedules, SCOPES_OF_A_JOB):
        if not has_room():
            return first
        scopes = min(SCOPES_OF_A_JOB, schedules - first)
        ledger.declare(f"sleeping-{first // SCOPES_OF_A_JOB:04}", schedule, scopes=scopes)
    return max(0, schedules)


def wait_until_planned(ledger: Ledger) -> None:
    """Wait until no schedule has been due for 3 s."""
    ledger.wait_for(
        "NOT EXISTS (SELECT FROM cronledger.schedules"
        " WHERE next_due_at < cronledger.db_now() - interval '3 s')",
        seconds=3600,
    )

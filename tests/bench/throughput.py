"""How fast real replicas are, on a server of this run's own with fsync on.

    python -m tests.bench.throughput [--short] [--binaries DIR]

Everything is computed from the ledger by SQL. Speed is a ratio to a floor that the same run
measures: bare INSERT and UPDATE of the same rows by psycopg. Exit 1 for a double or a missing row.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.rows import dict_row
from tabulate import tabulate

from cronledger.ledger.migrate import migrate
from cronledger.ledger.rows import Ending, NewClaim
from cronledger.rules.model import ExecutionKey
from tests.bench.cpu import Cpu
from tests.bench.plans import Sent, sent
from tests.bench.runner import FUNCTION
from tests.bench.server import durable_server

Connection = psycopg.Connection[dict[str, Any]]
Line = tuple[str, object]
BATCH = 500


@contextmanager
def replica(dsn: str, slots: int, profile: str | None = None) -> Iterator[int]:
    """The pid of a replica that is ready; drained at the end."""
    command = [sys.executable, "-m", "tests.bench.runner", dsn, str(slots)]
    command += [profile] if profile else []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        assert p.stdin is not None
        assert p.stdout is not None
        if p.stdout.readline() != "ready\n":
            raise RuntimeError("the replica did not start")
        try:
            yield p.pid
        finally:
            p.stdin.close()
            if p.wait(60) != 0:
                raise RuntimeError(f"the replica ended with {p.returncode}")


@contextmanager
def empty(dsn: str) -> Iterator[Connection]:
    """A connection to a ledger without jobs and executions; statistics begin anew."""
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as c:
        c.execute("DELETE FROM cronledger.jobs")
        c.execute(
            "TRUNCATE cronledger.jobs, cronledger.job_revisions, cronledger.schedules, "
            "cronledger.executions, cronledger.skips, cronledger.runners"
        )
        c.execute("SELECT FROM cronledger.maintain_partitions()")
        yield c


def declare(
    c: Connection, jobs: int, schedule: str, *, scopes: int = 1, **policies: object
) -> None:
    """So many jobs of that schedule, each with so many scopes."""
    values = {"name": "", "schedule": schedule, "handler": "python", "overlap": "allow"} | policies
    values["target"] = f'{{"python": "{FUNCTION}"}}'
    if scopes > 1:
        values |= {"scope_kind": "tenant", "scopes": [f"s{n:05}" for n in range(scopes)]}
    columns = ", ".join(values)
    places = ", ".join(f"%({name})s" for name in values)
    with c.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO cronledger.jobs ({columns}) VALUES ({places})".encode(),
            [values | {"name": f"job-{n:05}"} for n in range(jobs)],
        )


def one(c: Connection, query: str, **params: object) -> dict[str, Any]:
    """The single row of a query."""
    row = c.execute(query.encode(), params).fetchone()
    assert row is not None
    return row


# The first plan_time of a schedule is the first whole second after its job's first revision.
COUNTS = """
WITH span AS (
    SELECT s.job_name, s.scope_kind, s.scope_id, r.effective_from AS after,
           s.planned_through AS through
    FROM cronledger.schedules s
    JOIN cronledger.job_revisions r ON r.job_name = s.job_name AND r.revision = 1
), expected AS (
    SELECT s.job_name, s.scope_kind, s.scope_id, g.at AS plan_time
    FROM span s CROSS JOIN LATERAL generate_series(
        date_trunc('second', s.after) + interval '1 s', s.through, interval '1 s') g(at)
)
SELECT (SELECT count(*) FROM cronledger.executions) AS rows,
       (SELECT count(*) - count(DISTINCT (job_name, scope_kind, scope_id, plan_time))
        FROM cronledger.executions) AS doubles,
       (SELECT count(*) FROM expected x WHERE NOT EXISTS (
            SELECT FROM cronledger.executions e
            WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
                = (x.job_name, x.scope_kind, x.scope_id, x.plan_time))
          AND NOT EXISTS (
            SELECT FROM cronledger.skips k
            WHERE (k.job_name, k.scope_kind, k.scope_id) = (x.job_name, x.scope_kind, x.scope_id)
              AND x.plan_time BETWEEN k.from_plan_time AND k.through_plan_time)) AS missing,
       (SELECT coalesce(string_agg(reason || ' ' || n, ', '), 'none') FROM (
            SELECT reason, sum(count) AS n FROM cronledger.skips GROUP BY reason) r) AS skips
"""

LATENESS = """
SELECT round(1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY l)::numeric, 1) AS p50,
       round(1000 * percentile_cont(0.99) WITHIN GROUP (ORDER BY l)::numeric, 1) AS p99,
       round(1000 * max(l)::numeric, 1) AS max
FROM (SELECT extract(epoch FROM started_at - due_at) AS l FROM cronledger.executions
      WHERE due_at > (SELECT min(due_at) + interval '2 s' FROM cronledger.executions)) x
"""


def per_second(dsn: str, *, replicas: int, jobs: int, seconds: int) -> list[Line]:
    """`jobs` jobs that fire each second, for that long."""
    with empty(dsn) as c:
        with ExitStack() as running:
            for _ in range(replicas):
                running.enter_context(replica(dsn, 1000))
            declare(c, jobs, "* * * * * *")
            time.sleep(seconds)
        name = f"{jobs} per-second jobs, {replicas} replicas"
        found = {**one(c, COUNTS), **one(c, LATENESS)}
        return [(f"{name}: {key}", value) for key, value in found.items()]


def backlog(dsn: str, *, scopes: int, each: int, slots: int, profile: str | None) -> list[Line]:
    """`scopes` scopes of one job with `each` plan_times that were missed, through one replica."""
    with empty(dsn) as c:
        with replica(dsn, slots) as pid:  # nothing is due
            start = Cpu.spent(pid, c.info.backend_pid)
        declare(
            c, 1, "* * * * * *", scopes=scopes, catch_up="all", catch_up_limit=10_000,
            ends_at=one(c, "SELECT cronledger.db_now() AS now")["now"],
        )  # fmt: skip
        c.execute(
            "UPDATE cronledger.schedules SET planned_through = planned_through - %s",
            [timedelta(seconds=each)],
        )
        wanted = scopes * each
        before = Cpu(start.client, Cpu.spent(os.getpid(), c.info.backend_pid).server)
        with replica(dsn, slots, profile) as pid:
            wait_for(c, "SELECT count(*) >= %s AS done FROM cronledger.executions "
                        "WHERE status = 'SUCCESS'", wanted - scopes)  # fmt: skip
            product = Cpu.spent(pid, c.info.backend_pid).since(before)
        row = one(
            c,
            """SELECT count(*) AS rows, extract(epoch FROM
            max(finished_at) - min(started_at))::float8 AS s FROM cronledger.executions""",
        )
        before = Cpu.spent(os.getpid(), c.info.backend_pid)
        floor = bare(c, row["rows"])
        bare_cpu = Cpu.spent(os.getpid(), c.info.backend_pid).since(before)
    speed = row["rows"] / row["s"]
    name = f"backlog, {slots} slots, {scopes} scopes of {each}"

    rows = int(row["rows"])

    def each_us(seconds: float) -> int:
        return round(1e6 * seconds / rows)

    return [
        (f"{name}: executions/s", round(speed)),
        (f"{name}: bare SQL rows/s", round(floor)),
        (f"{name}: share of bare SQL", round(speed / floor, 2)),
        (f"{name}: CPU of the replica, us per execution", each_us(product.client)),
        (f"{name}: CPU of the server, us per execution", each_us(product.server)),
        (f"{name}: CPU of the server for bare SQL, us per row", each_us(bare_cpu.server)),
    ]


def wait_for(c: Connection, query: str, value: object, seconds: float = 300) -> None:
    """Until the query's `done` is true."""
    deadline = time.monotonic() + seconds
    while not c.execute(query.encode(), [value]).fetchone()["done"]:  # type: ignore[index]
        if time.monotonic() > deadline:
            raise TimeoutError(query)
        time.sleep(0.1)


def bare(c: Connection, rows: int) -> float:
    """Rows per second of the product's own INSERT and finish, alone: no planning, no handlers."""
    now = one(c, "SELECT date_trunc('second', cronledger.db_now()) AS now")["now"]
    batches = [_bare_batch(now, at, min(BATCH, rows - at)) for at in range(0, rows, BATCH)]
    c.execute("SET jit = off")
    c.execute("SET seq_page_cost = 1000")
    c.execute("SET plan_cache_mode = force_generic_plan")
    began = time.monotonic()
    written = 0
    for batch in batches:
        for statement in batch:
            with c.transaction():
                written += c.execute(statement.text.encode(), statement.params).rowcount
    seconds = time.monotonic() - began
    if written != 2 * rows:
        raise RuntimeError(f"{rows} rows were to be inserted and finished: {written} writes")
    return rows / seconds


def _bare_batch(now: datetime, first: int, rows: int) -> tuple[Sent, Sent]:
    """What a claim and a finish of so many executions send."""
    instants = [now + timedelta(microseconds=1 + first + i) for i in range(rows)]
    leases = [(ExecutionKey("bare", "global", "global", at), uuid4()) for at in instants]
    new = [
        NewClaim(key, 1, "default", key.plan_time, None, 1, token, timedelta(seconds=60))
        for key, token in leases
    ]
    ends = [
        Ending(key, token, "SUCCESS", None, None, None, None, None, 0, None)
        for key, token in leases
    ]
    return (
        sent(lambda s, c: s.try_claim_new(c, "bare", new)),
        sent(lambda s, c: s.finish_executions(c, ends)),
    )


def burst(dsn: str, *, scopes: int, ahead: int) -> list[Line]:
    """`scopes` schedules that are due in one instant, `ahead` seconds away: when the last one
    started."""
    with empty(dsn) as c:
        with replica(dsn, 10_000):
            now = one(c, "SELECT cronledger.db_now() AS now")["now"]
            at = now + timedelta(seconds=ahead)
            declare(c, 1, f"{at.second} {at.minute} {at.hour} * * *", scopes=scopes)
            wait_for(c, "SELECT count(*) >= %s AS done FROM cronledger.executions "
                        "WHERE status = 'SUCCESS'", scopes)  # fmt: skip
        row = one(
            c,
            """SELECT
            round(1000 * max(extract(epoch FROM started_at - due_at))) AS started,
            round(1000 * max(extract(epoch FROM finished_at - due_at))) AS finished
            FROM cronledger.executions""",
        )
    return [
        (f"{scopes} due in one instant: last started after ms", row["started"]),
        (f"{scopes} due in one instant: last finished after ms", row["finished"]),
    ]


def lone(dsn: str, *, seconds: int) -> list[Line]:
    """One job per second on an idle replica."""
    with empty(dsn) as c:
        with replica(dsn, 10):
            declare(c, 1, "* * * * * *")
            time.sleep(seconds)
        return [(f"one job per second: {k}", v) for k, v in one(c, LATENESS).items()]


def idle(dsn: str, *, seconds: int) -> list[Line]:
    """Statements per second of a replica with nothing to do for an hour; nothing where the server
    has no pg_stat_statements."""
    with empty(dsn) as c:
        if not one(c, "SHOW shared_preload_libraries")["shared_preload_libraries"]:
            return [("idle replica: statements/s", "no pg_stat_statements")]
        c.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        declare(c, 3, "0 0 1 1 *")
        with replica(dsn, 10):
            time.sleep(5)
            c.execute("SELECT pg_stat_statements_reset()")
            time.sleep(seconds)
            row = one(c, CALLS)
    return [
        (f"idle replica: {what}/s", round(row[what] / seconds, 2))
        for what in ("statements", "transactions")
    ]


# A transaction's own commands are no statements.
CALLS = """
SELECT coalesce(sum(calls) FILTER (WHERE query LIKE 'BEGIN%%'), 0) AS transactions,
       coalesce(sum(calls) FILTER (WHERE query NOT LIKE 'BEGIN%%' AND query NOT LIKE 'COMMIT%%'
           AND query NOT LIKE 'SELECT pg_catalog.set_config%%'), 0) AS statements
FROM pg_stat_statements s
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND query NOT LIKE '%%pg_stat_%%'
"""


def main() -> int:
    """Measure all, print; answers the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--binaries")
    parser.add_argument("--only", action="append", help="idle, lone, second, backlog, burst")
    parser.add_argument("--profile", help="where to write a cProfile of the backlog's replica")
    options = parser.parse_args()
    short, only = options.short, options.only or ["idle", "lone", "second", "backlog", "burst"]
    lines: list[Line] = []
    with durable_server(options.binaries) as dsn:
        migrate(dsn)
        seconds = 4 if short else 60
        if "idle" in only:
            lines += idle(dsn, seconds=10 if short else 120)
        if "lone" in only:
            lines += lone(dsn, seconds=seconds)
        if "second" in only:
            for replicas in (2,) if short else (1, 2):
                lines += per_second(dsn, replicas=replicas, jobs=500, seconds=seconds)
        if "backlog" in only:
            for slots in (10, 100, 1000):
                each = 250 if short else 3 * slots + 270
                lines += backlog(dsn, scopes=20, each=each, slots=slots, profile=options.profile)
            lines += backlog(dsn, scopes=1000, each=5 if short else 60, slots=1000, profile=None)
        if "burst" in only:
            lines += burst(dsn, scopes=2_000 if short else 10_000, ahead=5 if short else 8)
    print(tabulate(lines, ("what", "value")))
    return int(faults(lines))


def faults(lines: Sequence[Line]) -> bool:
    """Whether a row is double or missing."""
    return any(value for name, value in lines if name.endswith((": doubles", ": missing")))


if __name__ == "__main__":
    sys.exit(main())

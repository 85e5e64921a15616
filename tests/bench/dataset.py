"""A ledger of the size that the budgets speak of, made on the server in a minute or two.

Of the schedules three tenths are parked; a few thousand are due. Executions lie in 12 weekly
partitions, most of them SUCCESS; 2,000 RUNNING; a backlog of PENDING rows in front, of jobs whose
`max_running` is reached, of a queue whose is, and of one scope that is RUNNING; some retries.
"""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import psycopg

WEEKS = 12
QUEUES = ("default", "reports", "mail", "full")


@dataclass(frozen=True, slots=True)
class Size:
    """How many rows of each kind; `jobs` divides `schedules`, 40 divides `jobs`."""

    jobs: int
    schedules: int
    executions: int
    running: int
    backlog: int
    due: int
    retries: int

    @property
    def scopes(self) -> int:
        return self.schedules // self.jobs


FULL = Size(4_000, 1_000_000, 3_000_000, 2_000, 200_000, 4_000, 4_000)
SHORT = Size(400, 20_000, 60_000, 400, 8_000, 1_000, 400)

# What every n-th job is. Parked are the schedules of the first three tenths.
_JOBS = """
INSERT INTO cronledger.jobs (name, schedule, overlap, catch_up, max_running, queue, handler, target,
    payload, allow_stale_reentry, max_attempts, scope_kind, paused_at)
SELECT format('job-%%s', lpad(i::text, 5, '0')), '*/5 * * * *',
       CASE WHEN i < {jobs} * 0.2 THEN 'skip' WHEN i < {jobs} * 0.3 THEN 'wait'
            WHEN i %% 10 = 0 THEN 'allow' ELSE 'skip' END,
       'latest', CASE WHEN i BETWEEN {jobs} * 0.1 AND {jobs} * 0.2 - 1 THEN 5
                      WHEN i %% 50 = 7 THEN 1000 END,
       CASE WHEN i %% 40 = 39 THEN 'full'
            ELSE (ARRAY['default', 'reports', 'mail'])[1 + i %% 3] END,
       'python', jsonb_build_object('python', 'bench:handler'), '{{"size": 3}}', i %% 2 = 0, 3,
       'tenant', CASE WHEN i < {jobs} * 0.1 THEN cronledger.db_now() - interval '3 days' END
FROM generate_series(0, {jobs} - 1) i
"""

_SCHEDULES = """
INSERT INTO cronledger.schedules (job_name, scope_kind, scope_id, queue, planned_through,
    planned_revision, next_plan_time, next_due_at, parked)
SELECT j.name, 'tenant', lpad(g.scope::text, 6, '0'), j.queue, t.now - interval '5 min', 1,
       g.due, CASE WHEN g.parked IS NULL THEN g.due END, g.parked
FROM (SELECT cronledger.db_now() AS now) t
CROSS JOIN LATERAL (
    SELECT n, n %% {jobs} AS job, n / {jobs} AS scope,
           CASE WHEN n %% {jobs} < {jobs} * 0.1 THEN 'paused'
                WHEN n %% {jobs} < {jobs} * 0.2 THEN 'limit'
                WHEN n %% {jobs} < {jobs} * 0.3 THEN 'retired' END AS parked,
           CASE WHEN n >= {schedules} - {due}
                THEN t.now - interval '1 s' * ((n::bigint * 7919) %% 50)
                ELSE t.now + interval '1 s' * (60 + (n::bigint * 7919) %% 86400) END AS due
    FROM generate_series(0, {schedules} - 1) n) g
JOIN cronledger.jobs j ON j.name = format('job-%%s', lpad(g.job::text, 5, '0'))
ORDER BY 1, 2, 3
"""

_DONE = """
INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status, trigger,
    revision, queue, due_at, payload, attempt, max_attempts, runner_id, lease_token, heartbeat_at,
    stale_after, started_at, finished_at, duration_ms, result, error_code, error_msg)
SELECT j.name, 'tenant', lpad((n / {jobs} %% {scopes})::text, 6, '0'), p.at,
       CASE n %% 100 WHEN 0 THEN 'FAILED' ELSE 'SUCCESS' END, 'schedule', 1, j.queue, p.at,
       j.payload, 1, 3, 'runner-' || n %% 4, gen_random_uuid(), p.at, p.at + interval '60 s',
       p.at, p.at + interval '3 s', 3000, CASE WHEN n %% 100 > 0 THEN jsonb '{{"rows": 17}}' END,
       CASE n %% 100 WHEN 0 THEN 'exception' END, CASE n %% 100 WHEN 0 THEN 'ValueError: bad' END
FROM generate_series({first}::bigint, {last}) n
CROSS JOIN LATERAL (SELECT cronledger.db_now() - interval '1 week' * {weeks}
    + interval '1 week' * {weeks} * (n::float8 / {executions}) - interval '10 min' AS at) p
JOIN cronledger.jobs j ON j.name = format('job-%%s', lpad((n %% {jobs})::text, 5, '0'))
"""

# The jobs at their limit come first among the names that have waiting rows, as the worst case has
# it; the last thousand wait for a full queue and for one scope that is RUNNING.
_BACKLOG = """
INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status, trigger,
    revision, queue, due_at, payload, attempt, max_attempts, next_attempt_at)
SELECT j.name, 'tenant', lpad(b.scope::text, 6, '0'), b.at, 'PENDING', 'backfill', 1, j.queue, b.at,
       j.payload, 0, 3, b.at
FROM generate_series(0, {backlog} - 1) n
CROSS JOIN LATERAL (
    SELECT cronledger.db_now() - interval '20 h' + interval '0.3 s' * n AS at,
           CASE WHEN n < {backlog} - 1000 THEN {jobs} / 10 + n %% 4
                WHEN n < {backlog} - 500 THEN {jobs} * 3 / 4 + 39
                ELSE {jobs} / 5 END AS job,
           CASE WHEN n < {backlog} - 500 THEN n / 4 %% {scopes} ELSE 0 END AS scope) b
JOIN cronledger.jobs j ON j.name = format('job-%%s', lpad(b.job::text, 5, '0'))
"""

# Five of each job with a backlog, then of jobs all over; one in fifty lies weeks back. One in forty
# is stale.
_RUNNING = """
INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status, trigger,
    revision, queue, due_at, payload, attempt, max_attempts, runner_id, lease_token, heartbeat_at,
    stale_after, started_at)
SELECT j.name, 'tenant', lpad(r.scope::text, 6, '0'), r.at, 'RUNNING', 'schedule', 1, j.queue, r.at,
       j.payload, 1, 3, 'runner-' || n %% 4, gen_random_uuid(), t.now,
       CASE WHEN n %% 40 = 39 THEN t.now - interval '1 s' ELSE t.now + interval '1 h' END, r.at
FROM generate_series(0, {running} - 1) n
CROSS JOIN (SELECT cronledger.db_now() AS now) t
CROSS JOIN LATERAL (
    SELECT CASE WHEN n < 20 THEN {jobs} / 10 + n %% 4 WHEN n = 20 THEN {jobs} / 5
                WHEN n < 21 + {running} / 20 THEN 39 + 40 * (n %% ({jobs} / 40))
                WHEN n < 101 + {running} / 20 THEN {jobs} / 5 + n %% ({jobs} / 10)
                ELSE {jobs} * 3 / 10 + (n * 31) %% ({jobs} * 7 / 10) END AS job,
           CASE WHEN n = 20 THEN 0 ELSE n %% {scopes} END AS scope,
           t.now - interval '9 min' + interval '1 ms' * n
               - CASE WHEN n %% 50 = 49 THEN interval '1 week' * (1 + n %% 11)
                      ELSE interval '0' END AS at) r
JOIN cronledger.jobs j ON j.name = format('job-%%s', lpad(r.job::text, 5, '0'))
"""

_WAITING = """
UPDATE cronledger.schedules s SET parked = 'waiting', next_due_at = NULL
FROM cronledger.executions e JOIN cronledger.jobs j ON j.name = e.job_name
WHERE e.status = 'RUNNING' AND j.overlap = 'wait'
  AND (s.job_name, s.scope_kind, s.scope_id) = (e.job_name, e.scope_kind, e.scope_id)
"""

_RETRIES = """
UPDATE cronledger.executions e
SET next_attempt_at = cronledger.db_now() + interval '1 s' * (60 - n.i %% 120)
FROM (SELECT job_name, scope_kind, scope_id, plan_time, row_number() OVER (ORDER BY plan_time) AS i
      FROM cronledger.executions
      WHERE status = 'FAILED'
        AND job_name >= format('job-%%s', lpad(({jobs} * 3 / 10)::text, 5, '0'))
      ORDER BY plan_time DESC LIMIT {retries}) n
WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
    = (n.job_name, n.scope_kind, n.scope_id, n.plan_time)
"""

# As many RUNNING entries again as there are, dead: what a busy minute leaves between two vacuums.
_CHURN = """
UPDATE cronledger.executions e
SET status = 'SUCCESS', finished_at = cronledger.db_now(), duration_ms = 1
FROM (SELECT job_name, scope_kind, scope_id, plan_time FROM cronledger.executions
      WHERE status = 'RUNNING' AND job_name > format('job-%%s', lpad(({jobs} / 2)::text, 5, '0'))
        AND plan_time > cronledger.db_now() - interval '1 h' AND queue <> 'full'
      ORDER BY plan_time DESC LIMIT {running} / 4) d
WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
    = (d.job_name, d.scope_kind, d.scope_id, d.plan_time)
"""


def create_partitions(c: psycopg.Connection[Any]) -> None:
    """Those that `fill` needs; nothing where there are some. Its oldest plan_time lies some minutes
    before the first of the weeks, which is another partition when a Monday has just begun."""
    c.execute(
        """SELECT count(*) FROM cronledger_internal.create_partitions(cronledger.db_now()
           - interval '1 week' * %s - interval '1 h',
           cronledger.db_now() + interval '4 weeks', 604800)""",
        [WEEKS],
    )


def fill(c: psycopg.Connection, size: Size, *, chunk: int = 500_000, analyzed: bool = True) -> None:
    """A freshly migrated schema `cronledger` holds `size`, vacuumed and analyzed; then some churn.

    `c` is in autocommit mode. Partitions reach four weeks ahead, as maintenance makes them.
    """
    values = asdict(size) | {"scopes": size.scopes, "weeks": WEEKS}

    def run(statement: str) -> None:
        c.execute(text(statement, **values))

    create_partitions(c)
    run(
        "INSERT INTO cronledger.queues (name, max_running) VALUES ('mail', {running} / 5), "
        "('full', {running} / 20)"
    )
    run(_JOBS)
    run(_SCHEDULES)
    in_parallel(c, in_chunks(_DONE, size.executions, chunk, **values))
    run(_BACKLOG)
    run(_RUNNING)
    run(_WAITING)
    run(_RETRIES)
    if not analyzed:
        return
    # Partitions ahead are empty and were never vacuumed, as in life.
    for (name,) in c.execute(
        """SELECT name FROM cronledger.partitions()
           WHERE pg_relation_size(format('cronledger.%I', name)::regclass) > 0"""
    ).fetchall():
        run(f"VACUUM (ANALYZE) cronledger.{name}")
    for table in ("schedules", "jobs", "job_revisions", "queues"):
        run(f"VACUUM (ANALYZE) cronledger.{table}")
    run("CHECKPOINT")
    run(_CHURN)


def text(statement: str, **values: Any) -> bytes:
    """Return a statement with the values in the places of their names."""
    return statement.format(**values).replace("%%", "%").encode()


def in_chunks(statement: str, rows: int, chunk: int, /, **values: Any) -> Iterator[bytes]:
    """Yield the statement once for each chunk of the rows, which begins with `first`."""
    for first in range(0, rows, chunk):
        yield text(statement, first=first, last=min(first + chunk, rows) - 1, **values)


def in_parallel(c: psycopg.Connection[Any], statements: Iterable[bytes]) -> None:
    """Execute each statement on a connection of its own to the database of `c`, one per core."""

    def execute(statement: bytes) -> None:
        with psycopg.connect(c.info.dsn, password=c.info.password, autocommit=True) as own:
            own.execute("SET jit = off")
            own.execute(statement)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(execute, statements))

"""Fills a ledger with a long history, and with schedules and executions that cannot start.

Of 200 jobs with the same number of scopes, 40 are paused, and 20 have reached their `max_running`.
The latter have 200,000 PENDING executions, which each claim has to pass. All other executions are
SUCCESS, in 12 weekly partitions. Nothing of this becomes due within half a year.
"""

from typing import Any

from tests.bench import dataset
from tests.bench.dataset import text
from tests.bench.ledger import Ledger

MAX_RUNNING = 5
PENDING = 200_000
CHUNK = 1_000_000

KINDS = {"paused": 40, "limit": 20, "active": 140}
"""How many jobs of each kind. All have the same number of scopes."""

_SCHEDULES = """
UPDATE cronledger.schedules s
SET planned_through = cronledger.db_now(), planned_revision = j.revision,
    next_plan_time = cronledger.db_now() + interval '180 days', woken = false,
    parked = k.parked, next_due_at = CASE WHEN k.parked IS NULL
                                          THEN cronledger.db_now() + interval '180 days' END
FROM cronledger.jobs j
CROSS JOIN LATERAL (SELECT nullif(split_part(j.name, '-', 1), 'active') AS parked) k
WHERE j.name = s.job_name
"""

_DONE = """
INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status, trigger,
    revision, queue, due_at, payload, attempt, max_attempts, runner_id, lease_token, heartbeat_at,
    stale_after, started_at, finished_at, duration_ms, result)
SELECT format('active-%%s', lpad((n %% {jobs})::text, 4, '0')), 'tenant',
       's' || lpad((n / {jobs} %% {scopes})::text, 6, '0'), p.at, 'SUCCESS', 'schedule', 1,
       'default', p.at, '{{"size": 3}}', 1, 3, 'runner-' || n %% 4, gen_random_uuid(), p.at,
       p.at + interval '60 s', p.at, p.at + interval '3 s', 3000, '{{"rows": 17}}'
FROM generate_series({first}::bigint, {last}) n
CROSS JOIN LATERAL (SELECT cronledger.db_now() - interval '1 week' * {weeks}
    + interval '1 week' * {weeks} * (n::float8 / {rows}) - interval '10 min' AS at) p
"""

_PENDING = """
INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status, trigger,
    revision, queue, due_at, attempt, max_attempts, next_attempt_at)
SELECT format('limit-%%s', lpad((n %% {jobs})::text, 4, '0')), 'tenant',
       's' || lpad((n / {jobs} %% {scopes})::text, 6, '0'), p.at, 'PENDING', 'backfill', 1,
       'default', p.at, 0, 3, p.at
FROM generate_series(0, {pending} - 1) n
CROSS JOIN LATERAL (SELECT cronledger.db_now() - interval '20 h' + interval '0.3 s' * n AS at) p
"""

_RUNNING = """
INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status, trigger,
    revision, queue, due_at, attempt, max_attempts, runner_id, lease_token, heartbeat_at,
    stale_after, started_at)
SELECT format('limit-%%s', lpad((n %% {jobs})::text, 4, '0')), 'tenant',
       's' || lpad(n::text, 6, '0'), p.at, 'RUNNING', 'backfill', 1, 'default', p.at, 1, 3,
       'elsewhere', gen_random_uuid(), p.at, p.at + interval '30 days', p.at
FROM generate_series(0, {jobs} * {running} - 1) n
CROSS JOIN LATERAL (SELECT cronledger.db_now() - interval '9 min' AS at) p
"""


def fill(ledger: Ledger, rows: int, scopes: int) -> None:
    """Fill the ledger by INSERT … SELECT while the indexes exist, with a connection per core.

    `rows`: the SUCCESS executions. `scopes`: of each job.
    """
    for kind, jobs in KINDS.items():
        for job in range(jobs):
            ledger.declare(
                f"{kind}-{job:04}", "0 0 1 1 *", scopes=scopes, **_policies(kind, ledger)
            )
    ledger.connection.execute(_SCHEDULES)
    dataset.create_partitions(ledger.connection)
    values = {"jobs": KINDS["limit"], "scopes": scopes, "pending": PENDING, "running": MAX_RUNNING}
    ledger.connection.execute(text(_RUNNING, **values))
    ledger.connection.execute(text(_PENDING, **values))
    values = {"jobs": KINDS["active"], "scopes": scopes, "weeks": dataset.WEEKS, "rows": rows}
    dataset.in_parallel(ledger.connection, dataset.in_chunks(_DONE, rows, CHUNK, **values))
    ledger.connection.execute("VACUUM (ANALYZE) cronledger.executions")


def _policies(kind: str, ledger: Ledger) -> dict[str, Any]:
    now = ledger.one("SELECT cronledger.db_now() AS now")["now"]
    return {"paused": {"paused_at": now}, "limit": {"max_running": MAX_RUNNING}}.get(kind, {})

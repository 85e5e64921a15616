"""Fills a ledger for the page: weeks of history, and something for each panel to show.

A few jobs have many scopes and run once a day; the others have one scope and run all day. One job
fires every second. Each minute, hundreds of them are due at once. Of a thousand executions 15 are
FAILED and 5 CANCELLED; 2 plan_times of a thousand were skipped. Each hundredth job has failed since
this morning. Some executions are RUNNING, and some are overdue.
"""

from dataclasses import dataclass

from tests.bench.dataset import in_parallel, text
from tests.bench.ledger import Ledger

WEEKS = 4
PERIODS = (1, 2, 3, 5, 10, 15, 20, 30, 60)
"""Minutes between the firings of a job with one scope. They divide an hour."""
DAY_SECONDS = 86_400
MOST_JOBS = 10_000
RUNNERS = 8


@dataclass(frozen=True, slots=True)
class Size:
    """The shape of a ledger with about so many schedules and executions."""

    schedules: int
    executions: int
    most_jobs: int = MOST_JOBS

    @property
    def jobs(self) -> int:
        """All jobs but the one that fires every second."""
        return min(self.most_jobs, max(20, self.schedules // 5))

    @property
    def scoped(self) -> int:
        return self.jobs // 10

    @property
    def scopes(self) -> int:
        """Scopes of each of them."""
        return max(1, (self.schedules - self.single) // self.scoped)

    @property
    def single(self) -> int:
        return self.jobs - self.scoped

    @property
    def seconds(self) -> int:
        """Executions of the job that fires every second, the newest."""
        return min(self.executions // 10, 7 * DAY_SECONDS)

    @property
    def days(self) -> int:
        """Days of history: fewer than WEEKS if the executions do not suffice."""
        least = self.scoped * self.scopes + self.single * 1440 // PERIODS[-1]
        return max(2, min(7 * WEEKS, (self.executions - self.seconds) // least))

    @property
    def period(self) -> int:
        """Minutes between the firings of a job with one scope."""
        left = self.executions - self.seconds - self.days * self.scoped * self.scopes
        wanted = self.days * 1440 * self.single / max(1, left)
        return next((period for period in PERIODS if period >= wanted), PERIODS[-1])


_JOBS = """
INSERT INTO cronledger.jobs (name, schedule, overlap, queue, handler, target, scope_kind, scopes,
                             description, source)
SELECT format('job-%%s', lpad(i::text, 5, '0')),
       CASE WHEN i < {scoped} THEN format('%%s %%s * * *', i %% 60, i / 60 %% 24)
            ELSE format('%%s-59/{period} * * * *', i %% {period}) END,
       CASE WHEN i %% 3 = 0 THEN 'allow' ELSE 'skip' END,
       (ARRAY['default', 'reports', 'mail'])[1 + i %% 3], 'python',
       jsonb '{{"python": "bench:handler"}}',
       CASE WHEN i < {scoped} THEN 'tenant' ELSE 'global' END,
       CASE WHEN i < {scoped} THEN ARRAY(SELECT 't' || lpad(n::text, 6, '0')
                                         FROM generate_series(0, {scopes} - 1) n) END,
       'Job ' || i, 'app-' || i %% 20
FROM generate_series(0, {jobs} - 1) i
UNION ALL
SELECT 'tick', '* * * * * *', 'skip', 'default', 'python', '{{"python": "bench:handler"}}',
       'global', NULL, 'Fires every second', 'app-0'
"""

_BEGAN = """
UPDATE cronledger.job_revisions r
SET effective_from = date_trunc('day', cronledger.db_now(), 'UTC') - interval '{days} days'
"""

_SCHEDULES = """
UPDATE cronledger.schedules s
SET planned_through = n.at, planned_revision = 1, woken = false, parked = NULL,
    created_at = date_trunc('day', n.at, 'UTC') - interval '{days} days',
    next_plan_time = n.at + d.ahead, next_due_at = n.at + d.ahead
FROM (SELECT cronledger.db_now() AS at) n,
     (SELECT t.job_name, t.scope_id, interval '1 s' * CASE
          WHEN hashtext(t.scope_id || t.job_name) %% 2000 = 0 THEN -90 ELSE 3600 END AS ahead
      FROM cronledger.schedules t) d
WHERE (d.job_name, d.scope_id) = (s.job_name, s.scope_id)
"""

# Of one day, in the order in which they were planned.
_EXECUTIONS = """
INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status, trigger,
    revision, queue, due_at, payload, attempt, max_attempts, runner_id, lease_token, heartbeat_at,
    stale_after, started_at, finished_at, duration_ms, result, error_code, error_msg,
    cancel_requested_by, changed_xact)
SELECT p.job_name, p.kind, p.scope_id, p.at, s.status, 'schedule', 1, p.queue, p.at,
       jsonb '{{"size": 3}}', 1, 1, 'runner-' || p.n %% {runners}, gen_random_uuid(), p.at + s.late,
       p.at + interval '60 s', p.at + s.late, p.at + s.late + interval '1 ms' * s.ms, s.ms,
       CASE s.status WHEN 'SUCCESS' THEN jsonb '{{"rows": 17}}' END,
       CASE s.status WHEN 'FAILED' THEN 'exception' END,
       CASE s.status WHEN 'FAILED' THEN 'ValueError: the value is bad' END,
       CASE s.status WHEN 'CANCELLED' THEN 'alice' END,
       CASE WHEN p.at > p.now - interval '1 day' THEN pg_current_xact_id() END
FROM (SELECT n.now, q.*, abs(hashint8(hashtext(q.job_name || q.scope_id)::bigint * 31
                                      + extract(epoch FROM q.at)::bigint)::bigint) AS n
      FROM (SELECT cronledger.db_now() AS now,
                   date_trunc('day', cronledger.db_now(), 'UTC') - interval '{ago} days' AS day) n,
      LATERAL (
          SELECT format('job-%%s', lpad(i::text, 5, '0')) AS job_name, 'tenant' AS kind,
                 't' || lpad(c::text, 6, '0') AS scope_id, i AS number,
                 (ARRAY['default', 'reports', 'mail'])[1 + i %% 3] AS queue,
                 n.day + interval '1 minute' * (i %% 1440) AS at
          FROM generate_series(0, {scoped} - 1) i, generate_series(0, {scopes} - 1) c
          UNION ALL
          SELECT format('job-%%s', lpad(i::text, 5, '0')), 'global', 'global', i,
                 (ARRAY['default', 'reports', 'mail'])[1 + i %% 3],
                 n.day + interval '1 minute' * (m * {period} + i %% {period})
          FROM generate_series(0, 1440 / {period} - 1) m,
               generate_series({scoped}, {jobs} - 1) i
          UNION ALL
          SELECT 'tick', 'global', 'global', 1, 'default', n.day + interval '1 s' * x
          FROM generate_series(0, 86399) x
          WHERE n.day + interval '1 s' * x >= n.now - interval '1 s' * {seconds}
      ) q
      WHERE q.at < n.now - interval '10 s') p
CROSS JOIN LATERAL (
    SELECT CASE WHEN p.number %% 100 = 99 AND p.at > p.now - interval '8 hours' THEN 'FAILED'
                WHEN p.n %% 1000 < 15 THEN 'FAILED' WHEN p.n %% 1000 < 20 THEN 'CANCELLED'
                ELSE 'SUCCESS' END AS status,
           interval '1 ms' * (p.n %% 400) AS late, 20 + p.n %% 3000 AS ms) s
WHERE p.n %% 1000 < 998
ORDER BY p.at
"""

_SKIPS = """
INSERT INTO cronledger.skips (job_name, scope_kind, scope_id, from_plan_time, through_plan_time,
                              count, reason, revision)
SELECT format('job-%%s', lpad(i::text, 5, '0')), 'global', 'global', t.at, t.at, 1, 'missed', 1
FROM generate_series({scoped}, {jobs} - 1) i, generate_series(0, {days} * 2 - 1) d,
     LATERAL (SELECT date_trunc('day', cronledger.db_now(), 'UTC') - interval '12 hours' * d
                     + interval '1 second' * (i %% 3600 + 7) AS at) t
WHERE t.at < cronledger.db_now() - interval '1 hour'
"""

_RUNNING = """
INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status, trigger,
    revision, queue, due_at, attempt, max_attempts, runner_id, lease_token, heartbeat_at,
    stale_after, started_at)
SELECT format('job-%%s', lpad(i::text, 5, '0')), 'global', 'global', p.at, 'RUNNING', 'manual', 1,
       'default', p.at, 1, 1, 'runner-0', gen_random_uuid(), p.at, p.at + interval '1 day', p.at
FROM generate_series({scoped}, least({jobs} - 1, {scoped} + 199)) i,
     LATERAL (SELECT cronledger.db_now() - interval '30 s' - interval '1 ms' * i AS at) p
"""

_OVERDUE = """
INSERT INTO cronledger.executions (job_name, scope_kind, scope_id, plan_time, status, trigger,
    revision, queue, due_at, attempt, max_attempts, next_attempt_at)
SELECT format('job-%%s', lpad(i::text, 5, '0')), 'global', 'global', p.at, 'PENDING', 'manual', 1,
       'default', p.at, 0, 1, p.at
FROM generate_series({scoped}, least({jobs} - 1, {scoped} + 49)) i,
     LATERAL (SELECT cronledger.db_now() - interval '4 minutes' - interval '1 ms' * i AS at) p
"""

_RUNNERS = """
INSERT INTO cronledger.runners (id, host, pid, version, state, queues, handlers, slots,
                                running, heartbeat_at, stale_after, started_at)
SELECT 'runner-' || n, 'host-' || n, 100 + n, '0', 'running', ARRAY['default', 'reports', 'mail'],
       ARRAY['bench:handler'], 100, 25, cronledger.db_now(),
       cronledger.db_now() + interval '30 days', cronledger.db_now() - interval '3 days'
FROM generate_series(0, {runners} - 1) n
"""

_MARK = "SELECT cronledger_internal.mark_changed_hours(%s, 1000000) AS next"
_ROLL_UP = "SELECT cronledger_internal.roll_up_hours(10000) AS count"


def fill(ledger: Ledger, size: Size) -> None:
    """Fill the ledger by INSERT … SELECT while the indexes exist, with a connection per core."""
    c = ledger.connection
    values = {
        "jobs": size.jobs, "scoped": size.scoped, "scopes": size.scopes, "period": size.period,
        "days": size.days, "seconds": size.seconds, "runners": RUNNERS,
    }  # fmt: skip
    c.execute("SET jit = off")
    for statement in (_JOBS, _BEGAN, _SCHEDULES):
        c.execute(text(statement, **values))
    c.execute(
        "SELECT cronledger_internal.create_missing_partitions(ARRAY(SELECT generate_series("
        "cronledger.db_now() - interval '1 day' * %s, cronledger.db_now(), '1 day')))",
        [size.days],
    )
    days = range(size.days - 1, -1, -1)
    in_parallel(c, (text(_EXECUTIONS, ago=ago, **values) for ago in days))
    for statement in (_SKIPS, _RUNNING, _OVERDUE, _RUNNERS):
        c.execute(text(statement, **values))
    c.execute("VACUUM (ANALYZE) cronledger.executions")
    _roll_up(ledger)
    c.execute(
        "VACUUM (ANALYZE) cronledger.schedules, cronledger.jobs, cronledger.job_revisions,"
        " cronledger.skips, cronledger.rolled_up_hours, cronledger.changed_hours"
    )


def _roll_up(ledger: Ledger) -> None:
    """Count the hours of the last day, as the sweeper does."""
    after: str | None = "0"
    while after is not None:
        after = ledger.one(_MARK.replace("%s", "%(after)s::xid8"), after=after)["next"]
    while ledger.one(_ROLL_UP)["count"]:
        pass

-- PENDING and awaiting-retry executions that are due, with their schedule rows locked.
-- Lock: schedules FOR NO KEY UPDATE, SKIP LOCKED. A loose scan of the job names that have such rows,
-- then a bounded number of each job: a backlog of one job costs the others nothing. Left out are
-- jobs that are paused (but for manual executions made since: those were forced), retired, full, or
-- without a handler here, and scopes that are RUNNING unless they may overlap. The limits are
-- counted again under their locks. Zero rows: nothing is due again.
WITH RECURSIVE d AS (
    (SELECT e.job_name FROM {schema}.executions e WHERE e.next_attempt_at IS NOT NULL
     ORDER BY e.job_name LIMIT 1)
    UNION ALL
    SELECT (SELECT e.job_name FROM {schema}.executions e
            WHERE e.next_attempt_at IS NOT NULL AND e.job_name > d.job_name
            ORDER BY e.job_name LIMIT 1)
    FROM d WHERE d.job_name IS NOT NULL
)
SELECT s.job_name, s.scope_kind, s.scope_id, x.plan_time, x.id, x.status, x.queue
FROM d
JOIN {schema}.jobs j ON j.name = d.job_name AND j.retired_at IS NULL
    AND j.name <> ALL (%(not_here)s::text[])
    AND (j.max_running IS NULL OR j.max_running > (
        SELECT count(*) FROM {schema}.executions r
        WHERE r.job_name = j.name AND r.status = 'RUNNING'))
CROSS JOIN LATERAL (
    SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id, e.status, e.queue
    FROM {schema}.executions e
    WHERE e.job_name = j.name
      AND e.next_attempt_at <= {schema}.db_now()
      AND e.next_attempt_at > coalesce(j.paused_at, '-infinity')
      AND (j.paused_at IS NULL OR (e.trigger = 'manual' AND e.status = 'PENDING'))
      AND e.queue = ANY (%(queues)s::text[])
      AND NOT EXISTS (SELECT FROM {schema}.queues p
                      WHERE p.name = e.queue AND p.paused_at IS NOT NULL)
      AND (j.overlap = 'allow' OR NOT EXISTS (
          SELECT FROM {schema}.executions r
          WHERE (r.job_name, r.scope_kind, r.scope_id) = (e.job_name, e.scope_kind, e.scope_id)
            AND r.status = 'RUNNING'))
    ORDER BY e.next_attempt_at LIMIT %(max_rows)s
) x
JOIN {schema}.schedules s
    ON (s.job_name, s.scope_kind, s.scope_id) = (x.job_name, x.scope_kind, x.scope_id)
LIMIT %(max_rows)s
FOR NO KEY UPDATE OF s SKIP LOCKED

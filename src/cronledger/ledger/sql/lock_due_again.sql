-- PENDING and awaiting-retry executions that are due, with their schedule rows locked.
-- Lock: schedules FOR NO KEY UPDATE, SKIP LOCKED. A loose scan of the job names that have such rows,
-- then of each job as many as it has room for: a backlog of one job costs the others nothing. Left
-- out are jobs that are paused (but for manual executions made since: those were forced), retired,
-- full, or without a handler here, queues that are paused or full, and scopes that are RUNNING unless
-- they may overlap (one hash of them: a probe per row would open every partition for each). The limits
-- are counted again under their locks. Zero rows: nothing is due again.
WITH RECURSIVE d AS (
    (SELECT e.job_name FROM {schema}.executions e WHERE e.next_attempt_at IS NOT NULL
     ORDER BY e.job_name LIMIT 1)
    UNION ALL
    SELECT (SELECT e.job_name FROM {schema}.executions e
            WHERE e.next_attempt_at IS NOT NULL AND e.job_name > d.job_name
            ORDER BY e.job_name LIMIT 1)
    FROM d WHERE d.job_name IS NOT NULL
), busy AS MATERIALIZED (
    SELECT r.job_name, r.scope_kind, r.scope_id
    FROM d JOIN {schema}.executions r ON r.job_name = d.job_name AND r.status = 'RUNNING'
)
SELECT s.job_name, s.scope_kind, s.scope_id, x.plan_time, x.id, x.status, x.queue
FROM d
JOIN {schema}.jobs j ON j.name = d.job_name AND j.retired_at IS NULL
    AND j.name <> ALL (%(not_here)s::text[])
CROSS JOIN LATERAL (
    SELECT CASE WHEN j.max_running IS NOT NULL THEN greatest(0, j.max_running - (
        SELECT count(*) FROM {schema}.executions r
        WHERE r.job_name = j.name AND r.status = 'RUNNING')) END AS rows
) room
CROSS JOIN LATERAL (
    SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id, e.status, e.queue
    FROM {schema}.executions e
    WHERE e.job_name = j.name
      AND e.next_attempt_at <= {schema}.db_now()
      AND e.next_attempt_at > coalesce(j.paused_at, '-infinity')
      AND (j.paused_at IS NULL OR (e.trigger = 'manual' AND e.status = 'PENDING'))
      AND e.queue = ANY (ARRAY(
          SELECT o.name FROM unnest(%(queues)s::text[]) AS o(name)
          WHERE NOT EXISTS (
              SELECT FROM {schema}.queues q
              WHERE q.name = o.name AND (q.paused_at IS NOT NULL OR q.max_running <= (
                  SELECT count(*) FROM {schema}.executions r
                  WHERE r.queue = q.name AND r.status = 'RUNNING')))))
      AND (j.overlap = 'allow' OR (e.job_name, e.scope_kind, e.scope_id) NOT IN (
          SELECT b.job_name, b.scope_kind, b.scope_id FROM busy b))
    ORDER BY e.next_attempt_at LIMIT least(%(max_rows)s::bigint, room.rows)
) x
JOIN {schema}.schedules s
    ON (s.job_name, s.scope_kind, s.scope_id) = (x.job_name, x.scope_kind, x.scope_id)
LIMIT %(max_rows)s::bigint
FOR NO KEY UPDATE OF s SKIP LOCKED

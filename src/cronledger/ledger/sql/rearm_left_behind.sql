-- Parked schedules whose block is gone and that nobody re-armed (a crash between a finish and its
-- re-arming, a runner that came with the handler): back into the due index.
-- Lock: schedules by key, SKIP LOCKED. Reads what is parked waiting, limit or no_runner.
WITH free AS (
    SELECT s.job_name, s.scope_kind, s.scope_id FROM {schema}.schedules s
    WHERE s.parked = 'waiting' AND NOT EXISTS (
        SELECT FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
          AND e.status = 'RUNNING')
    UNION ALL
    SELECT l.job_name, l.scope_kind, l.scope_id
    FROM (SELECT DISTINCT s.job_name FROM {schema}.schedules s WHERE s.parked = 'limit') n
    LEFT JOIN {schema}.jobs j ON j.name = n.job_name
    CROSS JOIN LATERAL (
        SELECT s.job_name, s.scope_kind, s.scope_id FROM {schema}.schedules s
        WHERE s.parked = 'limit' AND s.job_name = n.job_name
        ORDER BY s.next_plan_time
        LIMIT greatest(0, coalesce(j.max_running, 1000) - (
            SELECT count(*) FROM {schema}.executions e
            WHERE e.job_name = n.job_name AND e.status = 'RUNNING'))) l
    JOIN {schema}.schedules s
        ON (s.job_name, s.scope_kind, s.scope_id) = (l.job_name, l.scope_kind, l.scope_id)
    LEFT JOIN {schema}.queues q ON q.name = s.queue
    WHERE q.max_running IS NULL OR q.max_running > (
        SELECT count(*) FROM {schema}.executions e WHERE e.queue = s.queue AND e.status = 'RUNNING')
    UNION ALL
    SELECT s.job_name, s.scope_kind, s.scope_id
    FROM {schema}.schedules s LEFT JOIN {schema}.jobs j ON j.name = s.job_name
    WHERE s.parked = 'no_runner' AND (j.name IS NULL OR EXISTS (
        SELECT FROM {schema}.runners r
        WHERE r.state = 'running' AND r.stale_after > {schema}.db_now() AND s.queue = ANY (r.queues)
          AND (j.handler = 'command' OR j.target ->> 'function' = ANY (r.handlers))))
), held AS MATERIALIZED (
    SELECT s.job_name, s.scope_kind, s.scope_id FROM {schema}.schedules s
    JOIN free f ON (s.job_name, s.scope_kind, s.scope_id) = (f.job_name, f.scope_kind, f.scope_id)
    ORDER BY s.job_name, s.scope_kind, s.scope_id FOR NO KEY UPDATE OF s SKIP LOCKED
)
UPDATE {schema}.schedules s
SET parked = NULL, next_due_at = coalesce(s.next_plan_time, {schema}.db_now())
FROM held h
WHERE (s.job_name, s.scope_kind, s.scope_id) = (h.job_name, h.scope_kind, h.scope_id)
  AND s.parked IN ('waiting', 'limit', 'no_runner')
RETURNING s.job_name, s.scope_kind, s.scope_id

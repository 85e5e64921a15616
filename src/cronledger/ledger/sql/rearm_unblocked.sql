-- Schedules that no longer wait go back into the due index: after a finish those of its (job, scope)
-- with nothing RUNNING, and as many of its limited job and queue as ended, where there is room; after a parking claim the
-- ones it parked, in case the block went while it parked them.
-- Lock: schedules by key, SKIP LOCKED (a claim or an edit has it and decides itself). In a
-- transaction of its own: executions come after schedules in the lock order.
WITH u AS MATERIALIZED (
    SELECT * FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(queues)s::text[])
        AS t(job, kind, scope, queue)
), free AS (
    SELECT s.job_name, s.scope_kind, s.scope_id
    FROM (SELECT DISTINCT job, kind, scope FROM u) u
    JOIN {schema}.schedules s ON (s.job_name, s.scope_kind, s.scope_id) = (u.job, u.kind, u.scope)
    WHERE s.parked = 'waiting' AND NOT EXISTS (
        SELECT FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (u.job, u.kind, u.scope)
          AND e.status = 'RUNNING')
    UNION
    SELECT l.job_name, l.scope_kind, l.scope_id
    FROM (SELECT job, count(*) AS ended FROM u GROUP BY job) u
    JOIN {schema}.jobs j ON j.name = u.job AND j.max_running IS NOT NULL
    CROSS JOIN LATERAL (
        SELECT s.job_name, s.scope_kind, s.scope_id FROM {schema}.schedules s
        WHERE s.parked = 'limit' AND s.job_name = u.job
        ORDER BY s.next_plan_time LIMIT u.ended) l
    UNION
    SELECT l.job_name, l.scope_kind, l.scope_id
    FROM (SELECT t.queue, count(*) AS ended FROM u t
          JOIN {schema}.queues q ON q.name = t.queue AND q.max_running IS NOT NULL
          GROUP BY t.queue) u
    CROSS JOIN LATERAL (
        SELECT s.job_name, s.scope_kind, s.scope_id FROM {schema}.schedules s
        WHERE s.parked = 'limit' AND s.queue = u.queue
        ORDER BY s.next_plan_time LIMIT u.ended) l
), room AS (
    SELECT f.* FROM free f
    JOIN {schema}.jobs j ON j.name = f.job_name
    LEFT JOIN {schema}.queues q ON q.name = j.queue
    WHERE (j.max_running IS NULL OR j.max_running > (
            SELECT count(*) FROM {schema}.executions e
            WHERE e.job_name = j.name AND e.status = 'RUNNING'))
      AND (q.max_running IS NULL OR q.max_running > (
            SELECT count(*) FROM {schema}.executions e
            WHERE e.queue = q.name AND e.status = 'RUNNING'))
), held AS MATERIALIZED (
    SELECT s.job_name, s.scope_kind, s.scope_id FROM {schema}.schedules s
    JOIN room f ON (s.job_name, s.scope_kind, s.scope_id) = (f.job_name, f.scope_kind, f.scope_id)
    ORDER BY s.job_name, s.scope_kind, s.scope_id FOR NO KEY UPDATE OF s SKIP LOCKED
)
UPDATE {schema}.schedules s
SET parked = NULL, next_due_at = coalesce(s.next_plan_time, {schema}.db_now())
FROM held h
WHERE (s.job_name, s.scope_kind, s.scope_id) = (h.job_name, h.scope_kind, h.scope_id)
  AND s.parked IN ('waiting', 'limit')
RETURNING s.job_name, s.scope_kind, s.scope_id

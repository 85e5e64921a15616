-- Schedules that no longer wait go back into the due index: after a finish those of its (job, scope)
-- with nothing RUNNING, and as many of its limited job and queue as ended, where there is room; after a
-- parking claim the ones it parked, in case the block went while it parked them.
-- Lock: schedules by key, SKIP LOCKED (a claim or an edit has it and decides itself). In a
-- transaction of its own: executions come after schedules in the lock order.
-- Which of these rows wait is found by their key (a constant instead of the subquery would invite the
-- index of all that is parked); OFFSET 0 keeps NOT EXISTS a probe for each of the few that do. Room is
-- counted once for each limited job and queue.
WITH RECURSIVE u AS MATERIALIZED (
    SELECT * FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(queues)s::text[])
        AS t(job, kind, scope, queue) LIMIT cardinality(%(jobs)s::text[])
), limited_jobs AS MATERIALIZED (
    SELECT j.name, least(u.ended, j.max_running - (
        SELECT count(*) FROM {schema}.executions e
        WHERE e.job_name = j.name AND e.status = 'RUNNING')) AS room
    FROM (SELECT job, count(*) AS ended FROM u GROUP BY job) u
    JOIN {schema}.jobs j ON j.name = u.job AND j.max_running IS NOT NULL
), limited_queues AS MATERIALIZED (
    SELECT q.name, least(u.ended, q.max_running - (
        SELECT count(*) FROM {schema}.executions e
        WHERE e.queue = q.name AND e.status = 'RUNNING')) AS room
    FROM (SELECT queue, count(*) AS ended FROM u GROUP BY queue) u
    JOIN {schema}.queues q ON q.name = u.queue AND q.max_running IS NOT NULL
), parked AS (
    (SELECT s.job_name FROM {schema}.schedules s
     WHERE s.parked = 'limit' AND EXISTS (SELECT FROM limited_queues q WHERE q.room > 0)
     ORDER BY s.job_name LIMIT 1)
    UNION ALL
    SELECT (SELECT s.job_name FROM {schema}.schedules s
            WHERE s.parked = 'limit' AND s.job_name > p.job_name ORDER BY s.job_name LIMIT 1)
    FROM parked p WHERE p.job_name IS NOT NULL
), freed AS MATERIALIZED (
    SELECT l.job_name, l.scope_kind, l.scope_id, l.queue
    FROM limited_jobs j
    CROSS JOIN LATERAL (
        SELECT s.job_name, s.scope_kind, s.scope_id, s.queue FROM {schema}.schedules s
        WHERE s.parked = 'limit' AND s.job_name = j.name
        ORDER BY s.next_plan_time LIMIT greatest(0, j.room)) l
    UNION
    SELECT l.job_name, l.scope_kind, l.scope_id, l.queue
    FROM limited_queues q
    CROSS JOIN LATERAL (
        SELECT n.* FROM parked p
        JOIN {schema}.jobs j ON j.name = p.job_name AND j.queue = q.name
        CROSS JOIN LATERAL (
            SELECT s.job_name, s.scope_kind, s.scope_id, s.queue, s.next_plan_time
            FROM {schema}.schedules s
            WHERE s.parked = 'limit' AND s.job_name = j.name
            ORDER BY s.next_plan_time LIMIT q.room) n
        ORDER BY n.next_plan_time LIMIT q.room) l
    WHERE q.room > 0
), waiting AS MATERIALIZED (
    SELECT s.job_name, s.scope_kind, s.scope_id
    FROM (SELECT DISTINCT job, kind, scope FROM u) u
    JOIN {schema}.schedules s ON (s.job_name, s.scope_kind, s.scope_id) = (u.job, u.kind, u.scope)
    WHERE s.parked = (SELECT 'waiting')
), free AS (
    SELECT w.job_name, w.scope_kind, w.scope_id FROM waiting w
    WHERE NOT EXISTS (
        SELECT FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (w.job_name, w.scope_kind, w.scope_id)
          AND e.status = 'RUNNING' OFFSET 0)
    UNION
    SELECT f.job_name, f.scope_kind, f.scope_id FROM freed f
    WHERE f.job_name <> ALL (ARRAY(
            SELECT j.name FROM (SELECT DISTINCT job_name FROM freed) n
            JOIN {schema}.jobs j ON j.name = n.job_name AND j.max_running <= (
                SELECT count(*) FROM {schema}.executions e
                WHERE e.job_name = j.name AND e.status = 'RUNNING')))
      AND f.queue <> ALL (ARRAY(
            SELECT q.name FROM (SELECT DISTINCT queue FROM freed) n
            JOIN {schema}.queues q ON q.name = n.queue AND q.max_running <= (
                SELECT count(*) FROM {schema}.executions e
                WHERE e.queue = q.name AND e.status = 'RUNNING')))
), held AS MATERIALIZED (
    SELECT f.* FROM (SELECT * FROM free ORDER BY job_name, scope_kind, scope_id) f
    CROSS JOIN LATERAL (
        SELECT FROM {schema}.schedules s
        WHERE (s.job_name, s.scope_kind, s.scope_id) = (f.job_name, f.scope_kind, f.scope_id)
        LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) s
)
UPDATE {schema}.schedules s
SET parked = NULL, next_due_at = coalesce(s.next_plan_time, {schema}.db_now())
FROM held h
WHERE (s.job_name, s.scope_kind, s.scope_id) = (h.job_name, h.scope_kind, h.scope_id)
  AND s.parked IN ('waiting', 'limit')
RETURNING s.job_name, s.scope_kind, s.scope_id

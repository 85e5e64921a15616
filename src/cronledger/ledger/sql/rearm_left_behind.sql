-- Makes due again the parked schedules that should not be parked any more: their block is gone and they
-- were not re-armed (a crash between a finish and its re-arming, a new runner that has the handler); or
-- they replace an execution that was not requested to end, because its row was locked; or their job has no
-- spec_error (a crash between the claim that parked them and its note; the next claim parks them again).
-- Lock: schedules by key, SKIP LOCKED. Reads the schedules that are parked waiting or no_runner, of each
-- job with rows parked by a limit as many as there is room for, and the row of each job that has broken
-- ones.
WITH RECURSIVE n AS (
    (SELECT s.job_name FROM {schema}.schedules s WHERE s.parked = 'limit'
     ORDER BY s.job_name LIMIT 1)
    UNION ALL
    SELECT (SELECT s.job_name FROM {schema}.schedules s
            WHERE s.parked = 'limit' AND s.job_name > n.job_name ORDER BY s.job_name LIMIT 1)
    FROM n WHERE n.job_name IS NOT NULL
), b AS (
    (SELECT s.job_name FROM {schema}.schedules s WHERE s.parked = 'spec_error'
     ORDER BY s.job_name LIMIT 1)
    UNION ALL
    SELECT (SELECT s.job_name FROM {schema}.schedules s
            WHERE s.parked = 'spec_error' AND s.job_name > b.job_name ORDER BY s.job_name LIMIT 1)
    FROM b WHERE b.job_name IS NOT NULL
), free AS (
    SELECT s.job_name, s.scope_kind, s.scope_id FROM {schema}.schedules s
    WHERE s.parked = 'waiting' AND NOT EXISTS (
        SELECT FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
          AND e.status = 'RUNNING')
    UNION ALL
    SELECT s.job_name, s.scope_kind, s.scope_id
    FROM {schema}.schedules s
    JOIN {schema}.jobs j ON j.name = s.job_name AND j.overlap = 'replace'
    WHERE s.parked = 'waiting' AND EXISTS (
        SELECT FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
          AND e.status = 'RUNNING' AND e.cancel_requested_at IS NULL)
    UNION ALL
    SELECT l.job_name, l.scope_kind, l.scope_id
    FROM n
    LEFT JOIN {schema}.jobs j ON j.name = n.job_name
    CROSS JOIN LATERAL {schema}_internal.job_room(j.name, j.max_running) limited
    CROSS JOIN LATERAL (
        SELECT s.job_name, s.scope_kind, s.scope_id, s.queue FROM {schema}.schedules s
        WHERE s.parked = 'limit' AND s.job_name = n.job_name
        ORDER BY s.next_plan_time
        LIMIT coalesce(limited.room, 1000)) l
    WHERE l.queue <> ALL (ARRAY(
        SELECT q.name FROM {schema}.queues q
        CROSS JOIN LATERAL {schema}_internal.queue_room(q.name, q.max_running) limited
        WHERE limited.room = 0))
    UNION ALL
    SELECT s.job_name, s.scope_kind, s.scope_id
    FROM {schema}.schedules s LEFT JOIN {schema}.jobs j ON j.name = s.job_name
    WHERE s.parked = 'no_runner' AND (j.name IS NULL OR EXISTS (
        SELECT FROM {schema}.runners r
        WHERE r.state = 'running' AND r.stale_after > {schema}.db_now() AND s.queue = ANY (r.queues)
          AND (j.handler IN ('command', 'sql', 'http') OR j.target ->> 'python' = ANY (r.handlers))))
    UNION ALL
    SELECT s.job_name, s.scope_kind, s.scope_id
    FROM b JOIN {schema}.jobs j ON j.name = b.job_name AND j.spec_error IS NULL
    JOIN {schema}.schedules s ON s.job_name = b.job_name AND s.parked = 'spec_error'
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
  AND s.parked IN ('waiting', 'limit', 'no_runner', 'spec_error')
RETURNING s.job_name, s.scope_kind, s.scope_id

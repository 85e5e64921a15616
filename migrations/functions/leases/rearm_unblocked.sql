CREATE OR REPLACE FUNCTION {schema}_internal.rearm_unblocked(
    of_jobs text[], of_kinds text[], of_scopes text[], of_queues text[])
RETURNS TABLE (job_name text, scope_kind text, scope_id text, queue text, rearmed boolean)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    has_gates  boolean;
    has_parked boolean;
BEGIN
    -- Mostly nothing waits anywhere, and these probes cost much less than the statements below. A schedule that is
    -- parked later was parked by a claim that examines it again after its COMMIT.
    SELECT EXISTS (SELECT FROM {schema}.gates),
           EXISTS (SELECT FROM {schema}.schedules s WHERE s.parked = 'waiting')
           OR EXISTS (SELECT FROM {schema}.schedules s WHERE s.parked = 'limit')
    INTO has_gates, has_parked;
    IF has_gates THEN
        PERFORM {schema}_internal.wake_gates(of_jobs, of_kinds, of_scopes);
    END IF;
    IF NOT has_parked THEN
        RETURN;
    END IF;
    -- The key finds which of these schedules wait; a constant instead of the subquery would invite the index
    -- of all parked ones. OFFSET 0 keeps NOT EXISTS a probe for each of the few that wait. Room is counted
    -- once for each limited job and queue.
    RETURN QUERY
    WITH RECURSIVE u AS MATERIALIZED (
        SELECT * FROM unnest(of_jobs, of_kinds, of_scopes, of_queues)
            AS t(job, kind, scope, queue) LIMIT cardinality(of_jobs)
    ), limited_jobs AS MATERIALIZED (
        SELECT j.name, least(u.ended, limited.room) AS room
        FROM (SELECT job, count(*) AS ended FROM u GROUP BY job) u
        JOIN {schema}.jobs j ON j.name = u.job AND j.max_running IS NOT NULL
        CROSS JOIN LATERAL {schema}_internal.job_room(j.name, j.max_running) limited
    ), limited_queues AS MATERIALIZED (
        SELECT q.name, least(u.ended, limited.room) AS room
        FROM (SELECT queue, count(*) AS ended FROM u GROUP BY queue) u
        JOIN {schema}.queues q ON q.name = u.queue AND q.max_running IS NOT NULL
        CROSS JOIN LATERAL {schema}_internal.queue_room(q.name, q.max_running) limited
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
            ORDER BY s.next_plan_time LIMIT j.room) l
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
        SELECT s.job_name, s.scope_kind, s.scope_id, s.queue
        FROM (SELECT DISTINCT job, kind, scope FROM u) u
        JOIN {schema}.schedules s ON (s.job_name, s.scope_kind, s.scope_id) = (u.job, u.kind, u.scope)
        WHERE s.parked = (SELECT 'waiting')
    ), free AS (
        SELECT w.job_name, w.scope_kind, w.scope_id, w.queue FROM waiting w
        WHERE NOT EXISTS (
            SELECT FROM {schema}.executions e
            WHERE (e.job_name, e.scope_kind, e.scope_id) = (w.job_name, w.scope_kind, w.scope_id)
              AND e.status = 'RUNNING' AND e.runner_id <> 'observed' OFFSET 0)
        UNION
        SELECT f.job_name, f.scope_kind, f.scope_id, f.queue FROM freed f
        WHERE f.job_name <> ALL (ARRAY(
                SELECT j.name FROM (SELECT DISTINCT job_name FROM freed) n
                JOIN {schema}.jobs j ON j.name = n.job_name
                CROSS JOIN LATERAL {schema}_internal.job_room(j.name, j.max_running) limited
                WHERE limited.room = 0))
          AND f.queue <> ALL (ARRAY(
                SELECT q.name FROM (SELECT DISTINCT queue FROM freed) n
                JOIN {schema}.queues q ON q.name = n.queue
                CROSS JOIN LATERAL {schema}_internal.queue_room(q.name, q.max_running) limited
                WHERE limited.room = 0))
    ), held AS MATERIALIZED (
        SELECT f.* FROM (SELECT * FROM free ORDER BY job_name, scope_kind, scope_id) f
        CROSS JOIN LATERAL (
            SELECT FROM {schema}.schedules s
            WHERE (s.job_name, s.scope_kind, s.scope_id) = (f.job_name, f.scope_kind, f.scope_id)
            LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) s
    ), armed AS (
        UPDATE {schema}.schedules s
        SET parked = NULL, next_due_at = coalesce(s.next_plan_time, {schema}.db_now())
        FROM held h
        WHERE (s.job_name, s.scope_kind, s.scope_id) = (h.job_name, h.scope_kind, h.scope_id)
          AND s.parked IN ('waiting', 'limit')
        RETURNING s.job_name, s.scope_kind, s.scope_id
    )
    SELECT f.job_name, f.scope_kind, f.scope_id, f.queue,
           (f.job_name, f.scope_kind, f.scope_id) IN (SELECT a.* FROM armed a)
    FROM free f;
END $$;
COMMENT ON FUNCTION {schema}_internal.rearm_unblocked(text[], text[], text[], text[]) IS 'After executions of these scopes and queues ended: makes due again the schedules that waited for them, and returns their keys. These are the schedules of the same scopes with nothing RUNNING, and as many schedules of the same limited jobs and queues as ended, where there is room. rearmed is false for a schedule that another transaction has locked: the caller tries again later. Also makes the gates that wait for these scopes due to be checked.';

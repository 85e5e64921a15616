-- Leases are renewed, released and ended here, for replicas (ledger/sql) and for workers in other languages
-- (52_workers.sql) alike. Every write matches lease_token and status = 'RUNNING', so that only the holder of
-- a lease can write.
-- Each function takes a batch, as arrays of equal length. first_plan and last_plan are the least and the
-- greatest plan_time of the batch, so that only the partitions between them are opened.
-- Instants are read from db_clock(), because the statement may have waited for a lock.
-- plpgsql, because it keeps its plans.

CREATE OR REPLACE FUNCTION {schema}_internal.heartbeat_leases(
    of_jobs text[], of_kinds text[], of_scopes text[], of_plans timestamptz[], of_tokens uuid[],
    of_timeouts interval[], first_plan timestamptz, last_plan timestamptz)
RETURNS TABLE (token uuid, cancel_requested boolean) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT u.*
        FROM (SELECT * FROM unnest(of_jobs, of_kinds, of_scopes, of_plans, of_tokens, of_timeouts)
              LIMIT cardinality(of_tokens))
            AS u(job, kind, scope, plan, token, stale_timeout)
        JOIN {schema}.executions e
            ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
        WHERE e.plan_time BETWEEN first_plan AND last_plan
          AND e.lease_token = u.token AND e.status = (SELECT 'RUNNING')
        ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
        FOR NO KEY UPDATE OF e SKIP LOCKED
    )
    UPDATE {schema}.executions e
    SET heartbeat_at = {schema}.db_clock(), stale_after = {schema}.db_clock() + h.stale_timeout
    FROM held h
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (h.job, h.kind, h.scope, h.plan)
      AND e.plan_time BETWEEN first_plan AND last_plan
      AND e.lease_token = h.token AND e.status = (SELECT 'RUNNING')
    RETURNING e.lease_token, e.cancel_requested_at IS NOT NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.heartbeat_leases(text[], text[], text[], timestamptz[], uuid[], interval[], timestamptz, timestamptz) IS 'Renews these leases, and returns the tokens of those that were renewed with whether a cancel was requested. Skips locked rows: a row that is being finished must not hold up the others.';

-- Without of_traces. With both functions a call would be ambiguous; here, no caller finds neither.
DROP FUNCTION IF EXISTS {schema}_internal.finish_executions(text[], text[], text[], timestamptz[], uuid[], text[], jsonb[], bigint[], text[], text[], text[], bigint[], interval[], bigint[], boolean[], timestamptz, timestamptz);
CREATE OR REPLACE FUNCTION {schema}_internal.finish_executions(
    of_jobs text[], of_kinds text[], of_scopes text[], of_plans timestamptz[], of_tokens uuid[],
    new_statuses text[], new_results jsonb[], new_rows_affected bigint[], new_outputs text[],
    new_error_codes text[], new_error_msgs text[], of_durations_ms bigint[], of_retries_after interval[],
    new_watermarks bigint[], of_covers boolean[], first_plan timestamptz, last_plan timestamptz,
    of_traces text[] DEFAULT NULL)
RETURNS TABLE (token uuid, status text, has_input boolean) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT u.*, e.watermark IS NOT NULL OR e.enqueue_key IS NOT NULL AS has_input
        FROM (SELECT * FROM unnest(of_jobs, of_kinds, of_scopes, of_plans, of_tokens, new_statuses,
                                   new_results, new_rows_affected, new_outputs, new_error_codes,
                                   new_error_msgs, of_durations_ms, of_retries_after, new_watermarks,
                                   of_covers, of_traces)
              LIMIT cardinality(of_tokens))
            AS u(job, kind, scope, plan, token, status, result, rows_affected, output, error_code,
                 error_msg, duration_ms, retry_after, watermark, covers, trace)
        JOIN {schema}.executions e
            ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
        WHERE e.plan_time BETWEEN first_plan AND last_plan
          AND e.lease_token = u.token AND e.status = (SELECT 'RUNNING')
        ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
        FOR NO KEY UPDATE OF e
    )
    UPDATE {schema}.executions e
    SET status = CASE WHEN h.status = 'FAILED' AND e.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
                      ELSE h.status END,
        result = h.result, rows_affected = h.rows_affected, output = h.output,
        error_code = h.error_code, error_msg = h.error_msg, trace_id = h.trace,
        duration_ms = coalesce(h.duration_ms, greatest(
            0, extract(epoch FROM {schema}.db_clock() - e.started_at) * 1000)::bigint),
        finished_at = {schema}.db_clock(), updated_at = {schema}.db_clock(),
        changed_xact = pg_current_xact_id(),
        watermark = CASE WHEN h.covers THEN h.watermark ELSE e.watermark END,
        next_attempt_at = CASE WHEN h.status = 'FAILED' AND e.attempt < e.max_attempts
                                    AND e.cancel_requested_at IS NULL
                               THEN {schema}.db_clock() + h.retry_after END
    FROM held h
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (h.job, h.kind, h.scope, h.plan)
      AND e.plan_time BETWEEN first_plan AND last_plan
      AND e.lease_token = h.token AND e.status = (SELECT 'RUNNING')
    RETURNING e.lease_token, e.status, h.has_input OR e.watermark IS NOT NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.finish_executions(text[], text[], text[], timestamptz[], uuid[], text[], jsonb[], bigint[], text[], text[], text[], bigint[], interval[], bigint[], boolean[], timestamptz, timestamptz, text[]) IS 'Writes the ends of these attempts, and returns the tokens of those that were written. A FAILED attempt is retried after its retry_after while attempts are left; NULL: never. After a requested cancel it is CANCELLED instead, and keeps its error. duration_ms NULL: counted from started_at. watermark replaces the one of the claim where covers is true. of_traces: the trace_id of each; NULL: none was traced. has_input: settle_inputs has to follow.';

CREATE OR REPLACE FUNCTION {schema}_internal.release_executions(
    of_jobs text[], of_kinds text[], of_scopes text[], of_plans timestamptz[], of_tokens uuid[],
    code text, message text, first_plan timestamptz, last_plan timestamptz)
RETURNS TABLE (token uuid) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT u.*, e.cancel_requested_at IS NOT NULL AS ends
        FROM (SELECT * FROM unnest(of_jobs, of_kinds, of_scopes, of_plans, of_tokens)
              LIMIT cardinality(of_tokens))
            AS u(job, kind, scope, plan, token)
        JOIN {schema}.executions e
            ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
        WHERE e.plan_time BETWEEN first_plan AND last_plan
          AND e.lease_token = u.token AND e.status = (SELECT 'RUNNING')
        ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
        FOR NO KEY UPDATE OF e
    )
    UPDATE {schema}.executions e
    SET status = CASE WHEN h.ends THEN 'CANCELLED' ELSE 'PENDING' END,
        next_attempt_at = CASE WHEN NOT h.ends THEN e.due_at END, max_attempts = e.max_attempts + 1,
        runner_id = CASE WHEN h.ends THEN e.runner_id END,
        lease_token = CASE WHEN h.ends THEN e.lease_token END,
        heartbeat_at = CASE WHEN h.ends THEN e.heartbeat_at END,
        stale_after = CASE WHEN h.ends THEN e.stale_after END,
        finished_at = CASE WHEN h.ends THEN {schema}.db_clock() END, updated_at = {schema}.db_clock(),
        changed_xact = CASE WHEN h.ends THEN pg_current_xact_id() ELSE e.changed_xact END,
        attempts = e.attempts || jsonb_build_object(
            'attempt', e.attempt, 'runner_id', e.runner_id, 'lease_token', e.lease_token,
            'started_at', e.started_at, 'last_seen', e.heartbeat_at, 'ended_at', {schema}.db_clock(),
            'error_code', code, 'error_msg', message)
    FROM held h
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (h.job, h.kind, h.scope, h.plan)
      AND e.plan_time BETWEEN first_plan AND last_plan
      AND e.lease_token = h.token AND e.status = (SELECT 'RUNNING')
    RETURNING h.token;
    -- Others may claim them at once. A release is rare, so that its COMMIT may take the lock of NOTIFY.
    IF FOUND THEN
        PERFORM pg_notify('{schema}', 'pending');
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.release_executions(text[], text[], text[], timestamptz[], uuid[], text, text, timestamptz, timestamptz) IS 'Returns these executions to PENDING with one more attempt, and returns the tokens of those that were released. The attempt is kept in attempts with this error, and the replicas are notified. After a requested cancel they are CANCELLED instead.';

CREATE OR REPLACE FUNCTION {schema}_internal.rearm_unblocked(
    of_jobs text[], of_kinds text[], of_scopes text[], of_queues text[])
RETURNS TABLE (job_name text, scope_kind text, scope_id text, queue text, rearmed boolean)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    -- Mostly nothing waits anywhere, and these probes cost much less than the statement below.
    IF NOT EXISTS (SELECT FROM {schema}.schedules s WHERE s.parked = 'waiting')
       AND NOT EXISTS (SELECT FROM {schema}.schedules s WHERE s.parked = 'limit') THEN
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
              AND e.status = 'RUNNING' OFFSET 0)
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
COMMENT ON FUNCTION {schema}_internal.rearm_unblocked(text[], text[], text[], text[]) IS 'After executions of these scopes and queues ended: makes due again the schedules that waited for them, and returns their keys. These are the schedules of the same scopes with nothing RUNNING, and as many schedules of the same limited jobs and queues as ended, where there is room. rearmed is false for a schedule that another transaction has locked: the caller tries again later.';

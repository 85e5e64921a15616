CREATE OR REPLACE FUNCTION {schema}_internal.postpone_executions(
    of_jobs text[], of_kinds text[], of_scopes text[], of_plans timestamptz[], of_tokens uuid[],
    of_afters interval[], of_messages text[], of_durations_ms bigint[],
    first_plan timestamptz, last_plan timestamptz)
RETURNS TABLE (token uuid, status text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT u.*, w.waits_until, e.attempts #>> '{-1,error_code}' = 'not_ready'
                                   AND e.attempts #>> '{-2,error_code}' = 'not_ready' AS repeats,
               CASE WHEN e.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
                    WHEN w.waits_until <= {schema}.db_clock() THEN 'FAILED' ELSE 'PENDING' END AS new_status
        FROM (SELECT * FROM unnest(of_jobs, of_kinds, of_scopes, of_plans, of_tokens, of_afters, of_messages,
                                   of_durations_ms)
              LIMIT cardinality(of_tokens))
            AS u(job, kind, scope, plan, token, wait, message, duration_ms)
        JOIN {schema}.executions e
            ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
        CROSS JOIN LATERAL (SELECT coalesce(
            e.waits_until,
            greatest(e.due_at, e.started_at) + (SELECT j.wait_at_most FROM {schema}.jobs j WHERE j.name = e.job_name),
            (SELECT s.next_plan_time FROM {schema}.schedules s
             WHERE (s.job_name, s.scope_kind, s.scope_id) = (e.job_name, e.scope_kind, e.scope_id)
               AND s.next_plan_time > e.plan_time LIMIT 1)) AS waits_until) w
        WHERE e.plan_time BETWEEN first_plan AND last_plan
          AND e.lease_token = u.token AND e.status = (SELECT 'RUNNING')
        ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
        FOR NO KEY UPDATE OF e
    )
    UPDATE {schema}.executions e
    SET status = h.new_status, waits_until = h.waits_until,
        next_attempt_at = CASE h.new_status WHEN 'PENDING' THEN least(
            h.waits_until, greatest({schema}.db_clock() + h.wait, e.due_at)) END,
        max_attempts = CASE h.new_status WHEN 'PENDING' THEN e.max_attempts + 1 ELSE e.max_attempts END,
        runner_id = CASE h.new_status WHEN 'PENDING' THEN NULL ELSE e.runner_id END,
        lease_token = CASE h.new_status WHEN 'PENDING' THEN NULL ELSE e.lease_token END,
        heartbeat_at = CASE h.new_status WHEN 'PENDING' THEN NULL ELSE e.heartbeat_at END,
        stale_after = CASE h.new_status WHEN 'PENDING' THEN NULL ELSE e.stale_after END,
        started_at = CASE h.new_status WHEN 'PENDING' THEN NULL ELSE e.started_at END,
        finished_at = CASE h.new_status WHEN 'PENDING' THEN NULL ELSE {schema}.db_clock() END,
        duration_ms = CASE h.new_status WHEN 'PENDING' THEN NULL ELSE h.duration_ms END,
        error_code = CASE h.new_status WHEN 'PENDING' THEN NULL ELSE 'not_ready' END,
        error_msg = CASE h.new_status WHEN 'PENDING' THEN NULL ELSE h.message END,
        updated_at = {schema}.db_clock(),
        changed_xact = CASE h.new_status WHEN 'PENDING' THEN e.changed_xact ELSE pg_current_xact_id() END,
        -- There may be thousands of attempts in a row that were not ready. The first and the last one have entries.
        attempts = CASE WHEN h.new_status <> 'PENDING' THEN e.attempts ELSE
            (CASE WHEN h.repeats THEN e.attempts - (-1) ELSE e.attempts END)
            || jsonb_build_object(
                'attempt', e.attempt, 'runner_id', e.runner_id, 'lease_token', e.lease_token,
                'started_at', e.started_at, 'last_seen', e.heartbeat_at, 'ended_at', {schema}.db_clock(),
                'error_code', 'not_ready', 'error_msg', h.message,
                'repeats', CASE WHEN h.repeats
                                THEN 1 + coalesce((e.attempts #>> '{-1,repeats}')::integer, 0) ELSE 0 END) END
    FROM held h
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (h.job, h.kind, h.scope, h.plan)
      AND e.plan_time BETWEEN first_plan AND last_plan
      AND e.lease_token = h.token AND e.status = (SELECT 'RUNNING')
    RETURNING h.token, e.status;
    -- Replicas that do not know when it is due have to plan their next claim again.
    IF FOUND THEN
        PERFORM pg_notify('{schema}', 'pending');
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.postpone_executions(text[], text[], text[], timestamptz[], uuid[], interval[], text[], bigint[], timestamptz, timestamptz) IS 'Returns these executions to PENDING, because their handlers are not ready, and returns the tokens of those that were written, with their status. Such an attempt does not count. The next one is due after this interval, and at the latest at the end of the wait: waits_until, or wait_at_most of the job after the start, or the next plan_time. After that end the execution is FAILED, with the code not_ready. After a requested cancel it is CANCELLED instead.';

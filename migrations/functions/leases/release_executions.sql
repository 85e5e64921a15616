CREATE OR REPLACE FUNCTION {schema}_internal.release_executions(
    of_jobs text[], of_kinds text[], of_scopes text[], of_plans timestamptz[], of_tokens uuid[],
    code text, message text, first_plan timestamptz, last_plan timestamptz)
RETURNS TABLE (token uuid, status text) LANGUAGE plpgsql VOLATILE AS $$
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
        next_attempt_at = CASE WHEN NOT h.ends THEN CASE WHEN e.gated_at IS NULL THEN e.due_at ELSE greatest(e.due_at, e.started_at) END END, max_attempts = e.max_attempts + 1,
        runner_id = CASE WHEN h.ends THEN e.runner_id END,
        lease_token = CASE WHEN h.ends THEN e.lease_token END,
        heartbeat_at = CASE WHEN h.ends THEN e.heartbeat_at END,
        stale_after = CASE WHEN h.ends THEN e.stale_after END,
        started_at = CASE WHEN h.ends THEN e.started_at END,
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
    RETURNING h.token, e.status;
    -- A release is rare, so that its COMMIT may take the lock of NOTIFY.
    IF FOUND THEN
        PERFORM pg_notify('{schema}', 'pending');
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.release_executions(text[], text[], text[], timestamptz[], uuid[], text, text, timestamptz, timestamptz) IS 'Returns these executions to PENDING with one more attempt, and returns the tokens of those that were written, with their status. The attempt is kept in attempts with this error, and the replicas are notified. After a requested cancel they are CANCELLED instead.';

CREATE OR REPLACE FUNCTION {schema}_internal.cancel_waiting(job text, requester text) RETURNS bigint
LANGUAGE sql AS $$
    WITH held AS MATERIALIZED (
        SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time FROM {schema}.executions e
        WHERE e.job_name = job AND e.next_attempt_at IS NOT NULL
        ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time FOR UPDATE
    ), ended AS (
        UPDATE {schema}.executions e
        SET status = 'CANCELLED', next_attempt_at = NULL, cancel_requested_at = {schema}.db_clock(),
            cancel_requested_by = requester, finished_at = coalesce(e.finished_at, {schema}.db_clock()),
            updated_at = {schema}.db_clock(), changed_xact = pg_current_xact_id()
        FROM held h
        WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
            = (h.job_name, h.scope_kind, h.scope_id, h.plan_time) AND e.next_attempt_at IS NOT NULL
        RETURNING 1
    ) SELECT count(*) FROM ended
$$;
COMMENT ON FUNCTION {schema}_internal.cancel_waiting(text, text) IS 'Cancels the executions of a job that are PENDING or await a retry, and returns how many there were.';

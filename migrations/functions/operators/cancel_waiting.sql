CREATE OR REPLACE FUNCTION {schema}_internal.cancel_waiting(job text, requester text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    ended bigint;
BEGIN
    -- What waits for required jobs counts as due from here on, and is cancelled with the others.
    WITH gated AS MATERIALIZED (
        SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time
        FROM (SELECT g.* FROM {schema}.gates g WHERE g.job_name = job
              ORDER BY g.scope_kind, g.scope_id, g.plan_time) g
        CROSS JOIN LATERAL (
            SELECT e.* FROM {schema}.executions e
            WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (g.job_name, g.scope_kind, g.scope_id, g.plan_time)
            OFFSET 0) e
    )
    UPDATE {schema}.executions e SET next_attempt_at = e.due_at
    FROM gated g
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (g.job_name, g.scope_kind, g.scope_id, g.plan_time)
      AND e.status = 'PENDING';
    DELETE FROM {schema}.gates g WHERE g.job_name = job;
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
    ) SELECT count(*) INTO ended FROM ended;
    RETURN ended;
END $$;
COMMENT ON FUNCTION {schema}_internal.cancel_waiting(text, text) IS 'Cancels the executions of a job that are PENDING or await a retry, and returns how many there were.';

CREATE OR REPLACE FUNCTION {schema}_internal.heartbeat_leases(
    of_jobs text[], of_kinds text[], of_scopes text[], of_plans timestamptz[], of_tokens uuid[],
    of_timeouts interval[], first_plan timestamptz, last_plan timestamptz,
    of_done bigint[] DEFAULT NULL, of_total bigint[] DEFAULT NULL, of_text text[] DEFAULT NULL)
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
    IF of_done IS NOT NULL THEN
        PERFORM {schema}_internal.store_progress(
            of_jobs, of_kinds, of_scopes, of_plans, of_tokens, first_plan, last_plan, of_done, of_total, of_text);
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.heartbeat_leases(text[], text[], text[], timestamptz[], uuid[], interval[], timestamptz, timestamptz, bigint[], bigint[], text[]) IS 'Renews these leases, and returns the tokens of those that were renewed with whether a cancel was requested. Skips locked rows: a row that is being finished must not hold up the others. of_done, of_total, of_text: the progress of each execution, where of_done is not NULL; NULL: none has reported any.';

-- Leases are renewed, released and ended in this folder, for replicas (src/cronledger/ledger/sql) and for workers in
-- other languages (functions/workers) alike. Every write matches lease_token and status = 'RUNNING', so that only the holder of
-- a lease can write.
-- Each function takes a batch, as arrays of equal length. first_plan and last_plan are the least and the
-- greatest plan_time of the batch, so that only the partitions between them are opened.
-- Instants are read from db_clock(), because the statement may have waited for a lock.
-- plpgsql, because it keeps its plans.

CREATE OR REPLACE FUNCTION {schema}_internal.finish_executions(
    of_jobs text[], of_kinds text[], of_scopes text[], of_plans timestamptz[], of_tokens uuid[],
    new_statuses text[], new_results jsonb[], new_rows_affected bigint[], new_outputs text[],
    new_error_codes text[], new_error_msgs text[], of_durations_ms bigint[], of_retries_after interval[],
    new_watermarks bigint[], of_covers boolean[], first_plan timestamptz, last_plan timestamptz,
    of_traces text[] DEFAULT NULL, with_windows boolean DEFAULT false)
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
    IF with_windows THEN
        PERFORM {schema}_internal.record_windows(of_jobs, of_kinds, of_scopes, of_plans, of_tokens);
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.finish_executions(text[], text[], text[], timestamptz[], uuid[], text[], jsonb[], bigint[], text[], text[], text[], bigint[], interval[], bigint[], boolean[], timestamptz, timestamptz, text[], boolean) IS 'Writes the ends of these attempts, and returns the tokens of those that were written. A FAILED attempt is retried after its retry_after while attempts are left; NULL: never. After a requested cancel it is CANCELLED instead, and keeps its error. duration_ms NULL: counted from started_at. watermark replaces the one of the claim where covers is true. of_traces: the trace_id of each; NULL: none was traced. has_input: settle_inputs has to follow. with_windows: some of these attempts have a window, and those that succeed are recorded in windows.';

CREATE OR REPLACE FUNCTION {schema}.take_results(queue text, n integer DEFAULT 100)
RETURNS TABLE (
    execution_id bigint, job_name text, scope_kind text, scope_id text, plan_time timestamptz,
    status text, group_id uuid, attempt integer, result jsonb, rows_affected bigint, error_code text,
    error_msg text, watermark bigint, finished_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    IF n IS NULL OR n NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'queue %: n is %, not 1 to 10,000', take_results.queue, coalesce(n::text, 'NULL')
            USING HINT = 'Take the results in several calls.', ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM {schema}_internal.check_queue(take_results.queue);
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time FROM {schema}.executions e
        WHERE e.queue = take_results.queue AND e.result IS NOT NULL AND e.result_taken_at IS NULL
          AND e.finished_at IS NOT NULL AND e.next_attempt_at IS NULL
        ORDER BY e.finished_at LIMIT n FOR NO KEY UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE {schema}.executions e
        SET result_taken_at = {schema}.db_clock(), updated_at = {schema}.db_clock()
        FROM held h
        WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
            = (h.job_name, h.scope_kind, h.scope_id, h.plan_time)
        RETURNING e.*
    )
    SELECT t.id, t.job_name::text, t.scope_kind::text, t.scope_id::text, t.plan_time, t.status,
           t.group_id, t.attempt, t.result, t.rows_affected, t.error_code, t.error_msg, t.watermark,
           t.finished_at
    FROM taken t ORDER BY t.finished_at, t.id;
END $$;
COMMENT ON FUNCTION {schema}.take_results(text, integer) IS 'Returns results of ended executions of this queue, the oldest first, each to one consumer. A result counts as taken when the transaction of the caller commits. Results that another consumer has locked are skipped. After a retry, an execution has a new result to take.';

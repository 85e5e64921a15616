CREATE OR REPLACE FUNCTION {schema}.group_status(group_id uuid)
RETURNS TABLE (
    total bigint, pending bigint, running bigint, awaiting_retry bigint, success bigint, failed bigint,
    cancelled bigint, is_finished boolean, first_created_at timestamptz, last_finished_at timestamptz,
    rows_affected numeric, results jsonb)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
    SELECT count(*), count(*) FILTER (WHERE e.status = 'PENDING'),
           count(*) FILTER (WHERE e.status = 'RUNNING'),
           count(*) FILTER (WHERE e.status = 'FAILED' AND e.next_attempt_at IS NOT NULL),
           count(*) FILTER (WHERE e.status = 'SUCCESS'),
           count(*) FILTER (WHERE e.status = 'FAILED' AND e.next_attempt_at IS NULL),
           count(*) FILTER (WHERE e.status = 'CANCELLED'),
           count(*) > 0 AND bool_and(e.finished_at IS NOT NULL AND e.next_attempt_at IS NULL),
           min(e.created_at), max(e.finished_at), sum(e.rows_affected),
           coalesce(jsonb_agg(jsonb_build_object(
               'execution_id', e.id, 'job', e.job_name, 'scope', e.scope_id, 'status', e.status,
               'result', e.result, 'error_code', e.error_code) ORDER BY e.id)
               FILTER (WHERE e.finished_at IS NOT NULL AND e.next_attempt_at IS NULL), '[]')
    FROM {schema}.executions e WHERE e.group_id = group_status.group_id
$$;
COMMENT ON FUNCTION {schema}.group_status(uuid) IS 'Returns the state of the executions that were enqueued with this group_id: the number in each status, whether all have ended (false if there are none), and in results how each of them ended, by id.';

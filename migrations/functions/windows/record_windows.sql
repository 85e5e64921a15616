CREATE OR REPLACE FUNCTION {schema}_internal.record_windows(
    of_jobs text[], of_kinds text[], of_scopes text[], of_plans timestamptz[], of_tokens uuid[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO {schema}.windows (job_name, scope_kind, scope_id, window_start, window_end, previous_end, execution_id)
    SELECT e.job_name, e.scope_kind, e.scope_id, e.window_start, e.plan_time,
           CASE WHEN EXISTS (SELECT FROM {schema}.windows w
                             WHERE (w.job_name, w.scope_kind, w.scope_id) = (e.job_name, e.scope_kind, e.scope_id))
                THEN e.window_start END,
           e.id
    FROM (SELECT * FROM unnest(of_jobs, of_kinds, of_scopes, of_plans, of_tokens) LIMIT cardinality(of_tokens))
        AS u(job, kind, scope, plan, token)
    CROSS JOIN LATERAL (
        SELECT e.* FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
          AND e.lease_token = u.token AND e.status = 'SUCCESS' AND e.window_start IS NOT NULL
        LIMIT 1) e
    ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
    -- A write of unknown outcome is repeated.
    ON CONFLICT (job_name, scope_kind, scope_id, window_end) DO NOTHING;
END $$;
COMMENT ON FUNCTION {schema}_internal.record_windows(text[], text[], text[], timestamptz[], uuid[]) IS 'Records the windows of those of these attempts that are SUCCESS. Raises if one of them overlaps another window of its scope, or leaves a gap.';

-- SECURITY DEFINER, because readers of the view may not read tables. jit = off, because compiling for all
-- partitions takes longer than the query. enable_seqscan: see present_violations.
CREATE OR REPLACE FUNCTION {schema}_internal.recent_violations()
RETURNS TABLE (kind text, job_name text, scope_kind text, scope_id text, plan_time timestamptz,
               execution_id bigint, detail text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
SET enable_seqscan = off AS $$
    SELECT v.kind, v.job_name, v.scope_kind, v.scope_id, v.plan_time, v.execution_id, v.detail
    FROM {schema}_internal.history_violations({schema}.db_now() - interval '7 days') v
    UNION ALL
    SELECT 'overlapping', b.job_name, b.scope_kind, b.scope_id, b.plan_time, b.id,
           format('it is RUNNING beside execution %s of this scope; overlap was %s', a.id, r.overlap)
    FROM {schema}.executions a
    JOIN {schema}.executions b
        ON (b.job_name, b.scope_kind, b.scope_id) = (a.job_name, a.scope_kind, a.scope_id)
        AND b.status = 'RUNNING' AND (b.started_at, b.id) > (a.started_at, a.id)
    CROSS JOIN LATERAL (
        SELECT h.definition ->> 'overlap' AS overlap FROM {schema}.job_revisions h
        WHERE h.job_name = b.job_name AND h.effective_from <= b.started_at
        ORDER BY h.revision DESC LIMIT 1) r
    WHERE a.status = 'RUNNING' AND a.runner_id <> 'observed' AND b.runner_id <> 'observed' AND r.overlap <> 'allow'
      AND least(a.plan_time, b.plan_time) < {schema}.db_now() - interval '7 days'  -- else it is in history
$$;
COMMENT ON FUNCTION {schema}_internal.recent_violations() IS 'Lists history_violations of the last 7 days, and overlapping RUNNING executions of any age.';

REVOKE EXECUTE ON FUNCTION {schema}_internal.recent_violations(), {schema}_internal.present_violations() FROM PUBLIC;

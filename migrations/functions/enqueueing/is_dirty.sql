CREATE OR REPLACE FUNCTION {schema}.is_dirty(
    job text, scope_id text DEFAULT 'global', scope_kind text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    scope {schema}.schedules;
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.jobs j WHERE j.name = is_dirty.job) THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    END IF;
    SELECT s.* INTO scope FROM {schema}.schedules s JOIN {schema}.jobs j ON j.name = s.job_name
    WHERE s.job_name = is_dirty.job AND s.scope_id = is_dirty.scope_id
      AND s.scope_kind = coalesce(is_dirty.scope_kind, j.scope_kind);
    scope.success_watermark := {schema}_internal.covered_watermark(scope);
    RETURN {schema}_internal.has_uncovered_input(scope);
END $$;
COMMENT ON FUNCTION {schema}.is_dirty(text, text, text) IS 'Returns whether this scope has input that no success covers yet. Returns false for a scope that does not exist.';

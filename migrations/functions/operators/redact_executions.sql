CREATE OR REPLACE FUNCTION {schema}_internal.redact_executions(
    of_job text, of_kind text, of_scope text, plan_times timestamptz[])
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    at      constant timestamptz := {schema}.db_clock();
    first   constant timestamptz := (SELECT min(u.at) FROM unnest(plan_times) u(at));
    last    constant timestamptz := (SELECT max(u.at) FROM unnest(plan_times) u(at));
    changed bigint[];
BEGIN
    IF first IS NULL THEN
        RETURN;
    END IF;
    WITH redacted AS (
        UPDATE {schema}.executions e
        SET payload = NULL, result = NULL, output = NULL, error_msg = NULL, enqueue_key = NULL,
            attempts = CASE WHEN e.attempts = '[]' THEN e.attempts ELSE (
                SELECT jsonb_agg(a.entry - 'error_msg' ORDER BY a.place)
                FROM jsonb_array_elements(e.attempts) WITH ORDINALITY a(entry, place)) END,
            redacted_at = at, updated_at = at
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (of_job, of_kind, of_scope) AND e.plan_time = ANY (plan_times)
          -- So that no other partition is searched.
          AND e.plan_time >= first AND e.plan_time <= last
        RETURNING e.id
    ) SELECT array_agg(r.id) INTO changed FROM redacted r;
    DELETE FROM {schema}.execution_progress p WHERE p.execution_id = ANY (changed);
    DELETE FROM {schema}.output_chunks c WHERE c.execution_id = ANY (changed);
    PERFORM {schema}_internal.redact_alerts(of_job, of_kind, of_scope, changed);
END $$;
COMMENT ON FUNCTION {schema}_internal.redact_executions(text, text, text, timestamptz[]) IS 'Redacts executions of one (job, scope) that have ended and are locked, and their alerts.';

CREATE OR REPLACE FUNCTION {schema}_internal.has_data(execution {schema}.executions) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT execution.redacted_at IS NULL
       AND (execution.payload IS NOT NULL OR execution.result IS NOT NULL OR execution.output IS NOT NULL
            OR execution.error_msg IS NOT NULL OR execution.enqueue_key IS NOT NULL OR execution.attempts <> '[]')
$$;
COMMENT ON FUNCTION {schema}_internal.has_data({schema}.executions) IS 'Returns whether an execution has data that a redaction would remove.';

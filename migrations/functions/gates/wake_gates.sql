-- Gates: executions that wait for other jobs. A step of the replicas (engine/maintenance/gates.py) decides them.
-- Lock: after schedules and executions, gates in key order, waiting. The step locks its rows with SKIP LOCKED before it
-- reads the required jobs, and waits for nothing. So a change that commits after this read finds the row locked, and
-- wakes it afterwards. The step checks a gate again after it has changed the job for which it waits, because a change
-- of that job did not find the row before.
CREATE OR REPLACE FUNCTION {schema}_internal.wake_gates(of_jobs text[], of_kinds text[], of_scopes text[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- Mostly there are no gates, and this probe costs much less than the statement below.
    IF NOT EXISTS (SELECT FROM {schema}.gates) THEN
        RETURN;
    END IF;
    WITH u AS MATERIALIZED (
        SELECT DISTINCT t.job, t.kind, t.scope FROM (
            SELECT * FROM unnest(of_jobs, of_kinds, of_scopes) LIMIT cardinality(of_jobs)) AS t(job, kind, scope)
    ), held AS MATERIALIZED (
        SELECT g.job_name, g.scope_kind, g.scope_id, g.plan_time
        FROM u JOIN {schema}.gates g ON (g.upstream_job, g.upstream_kind, g.upstream_id) = (u.job, u.kind, u.scope)
        ORDER BY g.job_name, g.scope_kind, g.scope_id, g.plan_time FOR NO KEY UPDATE OF g
    )
    UPDATE {schema}.gates g SET check_at = {schema}.db_clock()
    FROM held h
    WHERE (g.job_name, g.scope_kind, g.scope_id, g.plan_time) = (h.job_name, h.scope_kind, h.scope_id, h.plan_time);
    IF FOUND THEN
        PERFORM pg_notify('{schema}', 'gates');
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.wake_gates(text[], text[], text[]) IS 'After executions of these scopes ended, or their cursors moved: makes the gates that wait for them due to be checked, and notifies the replicas.';

-- VOLATILE, so that a statement which claims an execution can also read its results.
CREATE OR REPLACE FUNCTION {schema}.upstream(id bigint, token uuid)
RETURNS jsonb LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held  {schema}.executions;
    job   {schema}.jobs;
    gate  record;
    read  jsonb := '{}';
BEGIN
    SELECT e.* INTO held FROM {schema}.executions e
    WHERE e.id = upstream.id AND e.lease_token = token AND e.status = (SELECT 'RUNNING');
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT j.* INTO job FROM {schema}.jobs j WHERE j.name = held.job_name;
    FOR gate IN SELECT g.job_name, g.scope FROM {schema}_internal.gates_of(job) g LOOP
        read := read || jsonb_build_object(gate.job_name, (
            SELECT coalesce(jsonb_agg(jsonb_build_object('plan_time', x.plan_time, 'result', x.result)
                                      ORDER BY x.plan_time), '[]')
            FROM (SELECT s.plan_time, s.result FROM {schema}.executions s
                  WHERE s.job_name = gate.job_name
                    AND s.scope_kind = CASE gate.scope WHEN 'global' THEN 'global' ELSE held.scope_kind END
                    AND s.scope_id = CASE gate.scope WHEN 'global' THEN 'global' ELSE held.scope_id END
                    AND s.plan_time > held.gate_after AND s.plan_time <= held.plan_time
                    AND s.status = 'SUCCESS' AND s.trigger IN ('schedule', 'backfill')
                  ORDER BY s.plan_time DESC LIMIT 1000) x));
    END LOOP;
    RETURN read;
END $$;
COMMENT ON FUNCTION {schema}.upstream(bigint, uuid) IS 'Returns the results for which this execution waited: by required job a list of {"plan_time", "result"} in the order of plan_time, at most the newest 1,000. The lists of an execution that did not wait, such as a triggered one, are empty. NULL: the execution is not held under this token.';

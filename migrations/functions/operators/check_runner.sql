CREATE OR REPLACE FUNCTION {schema}_internal.has_live_runner(definition {schema}.jobs) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT definition.handler = 'external' OR EXISTS (
        SELECT FROM {schema}.runners r
        WHERE r.state = 'running' AND r.stale_after > {schema}.db_now()
          AND definition.queue = ANY (r.queues)
          AND (definition.handler <> 'python' OR definition.target ->> 'python' = ANY (r.handlers)))
$$;
COMMENT ON FUNCTION {schema}_internal.has_live_runner({schema}.jobs) IS 'Returns whether a live runner serves the queue of this job and has its function. Always true for handler external, whose workers are not runners.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_runner(definition {schema}.jobs, require_runner boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    lacking text := format('job %s: no live runner has queue %s%s', definition.name, definition.queue,
        CASE definition.handler WHEN 'python'
            THEN format(' and function %s', definition.target ->> 'python') END);
BEGIN
    IF {schema}_internal.has_live_runner(definition) THEN
        RETURN;
    END IF;
    IF require_runner THEN
        RAISE EXCEPTION '%', lacking
            USING HINT = 'Start one; without require_runner the execution stays PENDING until there is one.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RAISE WARNING '%; it stays PENDING until there is one', lacking;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_runner({schema}.jobs, boolean) IS 'Warns if no live runner can run this job, or raises if require_runner is true.';

-- Operator functions: everything stops and goes on. Lock: the rows of queues by name, waiting.

CREATE OR REPLACE FUNCTION {schema}.queues_in_use() RETURNS SETOF text LANGUAGE sql STABLE AS $$
    SELECT q.name FROM {schema}.queues q
    UNION SELECT j.queue FROM {schema}.jobs j WHERE j.retired_at IS NULL
    UNION SELECT r.name FROM {schema}.runners, unnest(queues) AS r(name)
    UNION SELECT e.queue FROM {schema}.executions e WHERE e.next_attempt_at IS NOT NULL
    ORDER BY 1
$$;
COMMENT ON FUNCTION {schema}.queues_in_use() IS 'The queues that a job, a runner, a waiting execution or the table queues has.';

CREATE OR REPLACE FUNCTION {schema}.pause_all(reason text DEFAULT NULL, requested_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    paused bigint;
BEGIN
    SELECT count(*) FILTER (WHERE {schema}.pause_queue(n.name, reason, requested_by))
    INTO paused FROM (SELECT u.name FROM {schema}.queues_in_use() u(name) ORDER BY u.name COLLATE "C") n;
    RETURN paused;
END $$;
COMMENT ON FUNCTION {schema}.pause_all(text, text) IS 'Nothing of any queue starts until it is resumed; what is RUNNING finishes. Answers how many queues were not paused before. A queue that nobody uses yet is not among them.';

CREATE OR REPLACE FUNCTION {schema}.resume_all(requested_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    resumed bigint;
BEGIN
    SELECT count(*) FILTER (WHERE {schema}.resume_queue(n.name, requested_by))
    INTO resumed FROM (SELECT q.name FROM {schema}.queues q WHERE q.paused_at IS NOT NULL
                       ORDER BY q.name) n;
    RETURN resumed;
END $$;
COMMENT ON FUNCTION {schema}.resume_all(text) IS 'Every paused queue goes on, whoever paused it; answers how many did.';

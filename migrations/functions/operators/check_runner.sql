CREATE OR REPLACE FUNCTION {schema}_internal.has_live_runner(
    definition {schema}.jobs, of_host text DEFAULT NULL) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT definition.handler = 'external' OR EXISTS (
        SELECT FROM {schema}.runners r
        WHERE r.state = 'running' AND r.stale_after > {schema}.db_now()
          AND definition.queue = ANY (r.queues)
          AND (definition.handler <> 'python' OR definition.target ->> 'python' = ANY (r.handlers))
          AND (definition.on IS NULL OR definition.on <@ r.labels)
          AND (of_host IS NULL OR 'host=' || of_host = ANY (r.labels)))
$$;
COMMENT ON FUNCTION {schema}_internal.has_live_runner({schema}.jobs, text) IS 'Returns whether a live runner serves the queue of this job, has its function and its labels, and is on this host; of_host NULL: on any. Always true for handler external, whose workers are not runners.';

-- Pure, because the view overdue calls it with the rights of whoever reads the view.
CREATE OR REPLACE FUNCTION {schema}_internal.missing_runner(queue text, function text, labels text[], live text)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT format('no live runner has queue %s%s%s', queue, ' and function ' || function,
                  ' and the labels ' || array_to_string(labels, ',')
                  || CASE WHEN live IS NOT NULL
                          THEN format('; those with the queue%s have the labels %s',
                                      CASE WHEN function IS NOT NULL THEN ' and the function' END, left(live, 500))
                          ELSE '' END)
$$;
COMMENT ON FUNCTION {schema}_internal.missing_runner(text, text, text[], text) IS 'Returns in words which runner is missing. labels: those that the job wants. live: the labels of the live runners that lack only these; NULL: there are none.';

CREATE OR REPLACE FUNCTION {schema}_internal.labels_of_live(queue text, function text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT string_agg(DISTINCT array_to_string(r.labels, ','), '; ') FROM {schema}.runners r
    WHERE r.state = 'running' AND r.stale_after > {schema}.db_now() AND labels_of_live.queue = ANY (r.queues)
      AND (labels_of_live.function IS NULL OR labels_of_live.function = ANY (r.handlers))
$$;
COMMENT ON FUNCTION {schema}_internal.labels_of_live(text, text) IS 'Returns the labels of the live runners that serve this queue and have this function; function NULL: any. NULL: there are no such runners.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_runner(
    definition {schema}.jobs, require_runner boolean, of_host text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    function text := CASE definition.handler WHEN 'python' THEN definition.target ->> 'python' END;
    wanted   text[] := nullif(array_remove(definition.on || ('host=' || of_host), NULL), '{}');
    lacking  text;
BEGIN
    IF {schema}_internal.has_live_runner(definition, of_host) THEN
        RETURN;
    END IF;
    lacking := format('job %s: %s', definition.name, {schema}_internal.missing_runner(
        definition.queue, function, wanted, {schema}_internal.labels_of_live(definition.queue, function)));
    IF require_runner THEN
        RAISE EXCEPTION '%', lacking
            USING HINT = 'Start one; without require_runner the execution stays PENDING until there is one.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RAISE WARNING '%; it stays PENDING until there is one', lacking;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_runner({schema}.jobs, boolean, text) IS 'Warns if no live runner of this host can run this job (of_host NULL: of any), or raises if require_runner is true.';

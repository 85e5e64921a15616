-- Removes a value, such as a password, from the earlier revisions of a job.
-- Lock: the row of the job, so that no edit appends a revision meanwhile; then the revisions, by number.

-- A URL keeps its scheme and host, because the definition must stay valid: its plan_times may not be planned yet.
CREATE OR REPLACE FUNCTION {schema}_internal.redacted_value(value jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE jsonb_typeof(value)
        WHEN 'object' THEN (SELECT coalesce(jsonb_object_agg(o.key, {schema}_internal.redacted_value(o.value)), '{}')
                            FROM jsonb_each(value) o)
        WHEN 'array' THEN (SELECT coalesce(jsonb_agg({schema}_internal.redacted_value(a.value) ORDER BY a.place), '[]')
                           FROM jsonb_array_elements(value) WITH ORDINALITY a(value, place))
        WHEN 'null' THEN value
        ELSE to_jsonb(coalesce(
            (SELECT m[1] || m[2] || '/***' FROM regexp_matches(
                value #>> '{}', '^(https?://)(?:[^/?#[:space:]]*@)?([^/?#@[:space:]]+)[^[:space:]]*$', 'i') m), '***')) END;
END $$;
COMMENT ON FUNCTION {schema}_internal.redacted_value(jsonb) IS 'Returns a JSON value with *** for each text, number and boolean in it. A URL keeps its scheme and host.';

-- Only values that may be secret. Of a variable or a header the name stays, and so does {"env": "NAME"}.
CREATE OR REPLACE FUNCTION {schema}_internal.is_redactable(path text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_position(path, NULL) IS NULL AND CASE
        WHEN path[1] IN ('payload', 'ping') THEN true
        WHEN path[1] = 'target' AND path[2] IN ('env', 'headers') THEN cardinality(path) = 3
        WHEN path[1] = 'target' THEN path[2] IN ('command', 'sql', 'url', 'body')
    END, false)
$$;
COMMENT ON FUNCTION {schema}_internal.is_redactable(text[]) IS 'Returns whether redact_revisions() accepts this path in a definition.';

CREATE OR REPLACE FUNCTION {schema}.redact_revisions(
    job text, path text[], reason text DEFAULT NULL, requested_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    present {schema}.jobs;
    number  bigint;
BEGIN
    IF path IS NULL OR NOT {schema}_internal.is_redactable(path) THEN
        RAISE EXCEPTION 'job %: path % does not name a value that can be redacted', job, coalesce(path::text, 'NULL')
            USING HINT = 'Name one of target command, target sql, target url, target body, target env VARIABLE, target headers HEADER, payload or ping, such as {target,env,DB_PASSWORD}.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT j.* INTO present FROM {schema}.jobs j WHERE j.name = job FOR NO KEY UPDATE;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM {schema}.job_revisions r WHERE r.job_name = job) THEN
        RAISE EXCEPTION 'job % does not exist', job
            USING HINT = 'To list the jobs, run SELECT DISTINCT job_name FROM {schema}.job_status.', ERRCODE = 'no_data_found';
    END IF;
    -- The last revision of a job is its present definition. A deleted job has none.
    WITH held AS MATERIALIZED (
        SELECT r.revision, {schema}_internal.redacted_value(r.definition #> path) AS redacted
        FROM {schema}.job_revisions r
        WHERE r.job_name = job AND r.revision IS DISTINCT FROM present.revision
          AND r.definition #> path IS NOT NULL
          AND r.definition #> path IS DISTINCT FROM {schema}_internal.job_definition(present) #> path
          AND NOT (path[1] = 'target' AND path[cardinality(path) - 1] IN ('env', 'headers')
                   AND jsonb_typeof(r.definition #> path) = 'object')
        ORDER BY r.revision FOR UPDATE
    ), done AS (
        UPDATE {schema}.job_revisions r SET definition = jsonb_set(r.definition, path, h.redacted, false)
        FROM held h
        WHERE r.job_name = job AND r.revision = h.revision AND r.definition #> path IS DISTINCT FROM h.redacted
        RETURNING 1
    ) SELECT count(*) INTO number FROM done;
    PERFORM {schema}_internal.record_action('redact_revisions', 'job', job, requested_by,
        CASE WHEN number > 0 THEN 'done' ELSE 'unchanged' END, job,
        arguments => jsonb_build_object('path', path, 'revisions', number), reason => reason);
    RETURN number;
END $$;
COMMENT ON FUNCTION {schema}.redact_revisions(text, text[], text, text) IS 'Replaces the value at this path, such as {target,env,DB_PASSWORD}, by *** in each earlier revision of a job in which it differs from the current value, and returns their number. Change the current value first. If a plan_time of an earlier revision is still to be planned, its execution gets the redacted payload. Backups, and the files of the database until the next VACUUM, still contain the value.';

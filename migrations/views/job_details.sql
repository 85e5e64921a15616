-- Jobs for people: all columns of jobs, with their comments, except those that may contain secrets. Operators and
-- runners may read these, with variables, headers and passwords masked.
DO $view$
DECLARE
    hidden  CONSTANT text[] := ARRAY['target', 'payload', 'ping'];
    columns text;
    one     record;
BEGIN
    -- A view can be replaced only if its columns keep their order, so a column that is added to jobs must come last, and
    -- `function` has a fixed place.
    SELECT string_agg(CASE a.attname WHEN 'handler' THEN 'j.handler, j.target ->> ''python'' AS function'
                                     ELSE format('j.%I', a.attname) END, ', ' ORDER BY a.attnum) INTO columns
    FROM pg_attribute a
    WHERE a.attrelid = '{schema}.jobs'::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> ALL (hidden);
    EXECUTE format('CREATE OR REPLACE VIEW {schema}.job_details AS SELECT %s FROM {schema}.jobs j', columns);
    FOR one IN
        SELECT a.attname AS name, col_description(a.attrelid, a.attnum) AS comment
        FROM pg_attribute a
        WHERE a.attrelid = '{schema}.jobs'::regclass AND a.attnum > 0 AND NOT a.attisdropped
          AND a.attname <> ALL (hidden)
        UNION ALL VALUES ('function', 'The Python function that runs; NULL with another handler.')
    LOOP
        EXECUTE format('COMMENT ON COLUMN {schema}.job_details.%I IS %L', one.name, one.comment);
    END LOOP;
END $view$;
COMMENT ON VIEW {schema}.job_details IS 'Jobs as they are defined, one row each, without target and payload.';

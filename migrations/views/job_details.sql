-- Jobs for people: all columns of jobs, with their comments, except those that may contain secrets, and their state.
-- Operators and runners may read the others, with variables, headers and passwords masked.
DO $view$
DECLARE
    hidden  CONSTANT text[] := ARRAY['target', 'payload', 'ping'];
    columns text;
    one     record;
BEGIN
    -- A view can be replaced only if its columns keep their order, so a column that is added to jobs must come last, and
    -- those that are computed have a fixed place.
    SELECT string_agg(CASE a.attname WHEN 'handler' THEN 'j.handler, j.target ->> ''python'' AS function'
                                     WHEN 'queue' THEN 'j.queue, q.paused_at AS queue_paused_at,
                                         q.paused_by AS queue_paused_by, q.paused_reason AS queue_paused_reason,
                                         {schema}_internal.job_state(j.retired_at, j.spec_error, j.paused_at,
                                                                     j.paused_until, q.paused_at) AS state'
                                     ELSE format('j.%I', a.attname) END, ', ' ORDER BY a.attnum) INTO columns
    FROM pg_attribute a
    WHERE a.attrelid = '{schema}.jobs'::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> ALL (hidden);
    EXECUTE format('CREATE OR REPLACE VIEW {schema}.job_details AS SELECT %s FROM {schema}.jobs j'
                   ' LEFT JOIN {schema}.queues q ON q.name = j.queue', columns);
    FOR one IN
        SELECT a.attname AS name, col_description(a.attrelid, a.attnum) AS comment
        FROM pg_attribute a
        WHERE a.attrelid = '{schema}.jobs'::regclass AND a.attnum > 0 AND NOT a.attisdropped
          AND a.attname <> ALL (hidden)
        UNION ALL
        SELECT 'queue_' || a.attname, col_description(a.attrelid, a.attnum)
        FROM pg_attribute a
        WHERE a.attrelid = '{schema}.queues'::regclass AND a.attname IN ('paused_at', 'paused_by', 'paused_reason')
        UNION ALL
        VALUES ('function', 'The Python function that runs; NULL with another handler.'),
               ('state', 'active, paused, queue_paused, retired, or broken (spec_error contains the reason).')
    LOOP
        EXECUTE format('COMMENT ON COLUMN {schema}.job_details.%I IS %L', one.name, one.comment);
    END LOOP;
END $view$;
COMMENT ON VIEW {schema}.job_details IS 'Jobs as they are defined, one row each, without target and payload.';

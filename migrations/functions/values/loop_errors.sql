CREATE OR REPLACE FUNCTION {schema}_internal.loop_errors(errors jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT string_agg(e.key || ': ' || e.value, '; ' ORDER BY e.key)
    FROM jsonb_each_text(CASE jsonb_typeof(errors) WHEN 'object' THEN errors ELSE '{}' END) e
    -- Without LISTEN a runner polls, and works.
    WHERE e.key <> 'listen'
$$;
COMMENT ON FUNCTION {schema}_internal.loop_errors(jsonb) IS 'Returns the errors of the loops of a runner, from its diagnostics, as text; NULL: there are none.';

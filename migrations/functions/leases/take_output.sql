CREATE OR REPLACE FUNCTION {schema}_internal.take_output(of_execution bigint, of_attempt integer)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    taken text;
BEGIN
    WITH gone AS (
        DELETE FROM {schema}.output_chunks c
        WHERE c.execution_id = of_execution AND c.attempt = of_attempt
        RETURNING c.number, c.text
    ) SELECT string_agg(g.text, '' ORDER BY g.number) INTO taken FROM gone g;
    RETURN taken;
END $$;
COMMENT ON FUNCTION {schema}_internal.take_output(bigint, integer) IS 'Deletes the chunks of an attempt, and returns their text; NULL: there are none. The caller has locked the execution, so that no chunk is being written.';

CREATE OR REPLACE FUNCTION {schema}.rolled_up_before() RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.complete_before FROM {schema}.roll_up_state s
$$;
COMMENT ON FUNCTION {schema}.rolled_up_before() IS 'Returns the instant before which all hours are in execution_hours, with all changes up to the last roll-up. Count the executions of later hours themselves. NULL: no hour has been counted.';

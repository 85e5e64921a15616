CREATE OR REPLACE FUNCTION {schema}.pruned_through() RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.through FROM {schema}.pruned p
$$;
COMMENT ON FUNCTION {schema}.pruned_through() IS 'Returns the last plan_time whose executions and skips may have been pruned; NULL: nothing was pruned.';

CREATE OR REPLACE FUNCTION {schema}_internal.record_pruned(last_plan_time timestamptz) RETURNS void LANGUAGE sql AS $$
    UPDATE {schema}.pruned p SET through = last_plan_time, recorded_at = {schema}.db_now()
    WHERE p.through < last_plan_time OR p.through IS NULL AND last_plan_time IS NOT NULL
$$;
COMMENT ON FUNCTION {schema}_internal.record_pruned(timestamptz) IS 'Records that plan_times up to this instant may have been pruned. An earlier instant than the recorded one changes nothing.';

CREATE OR REPLACE FUNCTION {schema}_internal.prune_hours(most integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (
        DELETE FROM {schema}.rolled_up_hours r
        WHERE r.ctid = ANY (ARRAY(
            SELECT o.ctid FROM {schema}.rolled_up_hours o
            WHERE o.hour <= (SELECT p.through FROM {schema}.pruned p) ORDER BY o.hour LIMIT most))
        RETURNING 1
    ) SELECT count(*) FROM gone
$$;
COMMENT ON FUNCTION {schema}_internal.prune_hours(integer) IS 'Deletes at most this many hours whose executions may have been pruned, the oldest first, and returns how many.';

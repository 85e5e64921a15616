CREATE OR REPLACE FUNCTION {schema}_internal.prune_breaches(most integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (
        DELETE FROM {schema}.deadline_breaches b
        WHERE b.ctid = ANY (ARRAY(
            SELECT o.ctid FROM {schema}.deadline_breaches o
            WHERE o.plan_time <= (SELECT p.through FROM {schema}.pruned p) ORDER BY o.plan_time LIMIT most))
        RETURNING 1
    ) SELECT count(*) FROM gone
$$;
COMMENT ON FUNCTION {schema}_internal.prune_breaches(integer) IS 'Deletes at most this many breaches whose executions may have been pruned, the oldest first, and returns how many. The counts of their months are kept.';

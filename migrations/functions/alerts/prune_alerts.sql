CREATE OR REPLACE FUNCTION {schema}_internal.prune_alerts(most integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM {schema}.deliveries d
    WHERE d.id = ANY (ARRAY(
        SELECT o.id FROM {schema}.deliveries o
        WHERE o.created_at <= (SELECT p.through FROM {schema}.pruned p) ORDER BY o.created_at LIMIT most));
    WITH gone AS (
        DELETE FROM {schema}.raised_alerts r
        WHERE r.id = ANY (ARRAY(
            SELECT a.id FROM {schema}.raised_alerts a
            WHERE a.at <= (SELECT p.through FROM {schema}.pruned p) ORDER BY a.at, a.id LIMIT most))
        RETURNING 1
    ) SELECT count(*) FROM gone
$$;
COMMENT ON FUNCTION {schema}_internal.prune_alerts(integer) IS 'Deletes at most this many alerts, and as many deliveries, that are older than all kept executions, the oldest first, and returns the number of alerts.';

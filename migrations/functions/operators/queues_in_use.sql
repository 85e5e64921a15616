-- SECURITY DEFINER, because the view queue_status calls it with the rights of its reader.
CREATE OR REPLACE FUNCTION {schema}_internal.queues_in_use() RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT q.name FROM {schema}.queues q
    UNION SELECT j.queue FROM {schema}.jobs j WHERE j.retired_at IS NULL
    UNION SELECT q.name FROM {schema}.runners r, unnest(r.queues) AS q(name)
          WHERE r.stale_after > {schema}.db_now() - interval '1 day'
    UNION SELECT e.queue FROM {schema}.executions e WHERE e.next_attempt_at IS NOT NULL
    ORDER BY 1
$$;
COMMENT ON FUNCTION {schema}_internal.queues_in_use() IS 'Lists the queues of jobs, waiting executions, the table queues, and runners that were seen within a day.';

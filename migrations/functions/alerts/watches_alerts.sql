CREATE OR REPLACE FUNCTION {schema}_internal.watch_alerts() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Only the first of them waits for another transaction, and nothing from before it raises alerts.
    IF EXISTS (SELECT FROM {schema}.alert_progress p WHERE NOT p.watching) THEN
        UPDATE {schema}.alert_progress
        SET watching = true, handled = pg_current_snapshot(), since = {schema}.db_clock(), next_at = '-infinity'
        WHERE NOT watching;
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.watch_alerts() IS 'Runs after a job with notify or a channel is written. Makes replicas call raise_alerts() once a job has notify, or a channel exists.';

CREATE OR REPLACE FUNCTION {schema}_internal.watches_alerts() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.watching FROM {schema}.alert_progress p
$$;
COMMENT ON FUNCTION {schema}_internal.watches_alerts() IS 'Returns whether raise_alerts() has to be called: a job has notify, or a channel exists.';

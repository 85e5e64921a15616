CREATE OR REPLACE FUNCTION {schema}_internal.jobs_watch_alerts() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Only the first of them waits for another transaction, and nothing from before it raises alerts.
    IF (NEW.notify <> '[]' OR NEW.queue = 'alerts')
            AND EXISTS (SELECT FROM {schema}.alert_progress p WHERE NOT p.watching) THEN
        UPDATE {schema}.alert_progress
        SET watching = true, handled = pg_current_snapshot(), since = {schema}.db_clock(), next_at = '-infinity'
        WHERE NOT watching;
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_watch_alerts() IS 'Runs after a write to jobs. Makes replicas call raise_alerts() once a job has notify, or a channel exists.';

CREATE OR REPLACE FUNCTION {schema}_internal.watches_alerts() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.watching FROM {schema}.alert_progress p
$$;
COMMENT ON FUNCTION {schema}_internal.watches_alerts() IS 'Returns whether raise_alerts() has to be called: a job has notify, or a channel exists.';

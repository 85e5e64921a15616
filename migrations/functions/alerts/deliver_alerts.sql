CREATE OR REPLACE FUNCTION {schema}_internal.deliver_alerts() RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    most constant integer := 500;
    to_  text;
    made bigint;
BEGIN
    -- Each channel at most once a minute, so that its alerts are grouped; the first one is not delayed.
    FOR to_ IN
        SELECT c.name FROM {schema}.channels c
        WHERE EXISTS (SELECT FROM {schema}.raised_alerts a WHERE a.delivery_id IS NULL AND a.channel = c.name)
          AND NOT EXISTS (
              SELECT FROM {schema}.deliveries d
              WHERE d.channel = c.name AND d.requested_by IS NULL
                -- A later one was created before the clock was set back.
                AND d.created_at > {schema}.db_now() - interval '1 minute' AND d.created_at <= {schema}.db_clock())
        ORDER BY c.name
    LOOP
        WHILE EXISTS (SELECT FROM {schema}.raised_alerts a WHERE a.delivery_id IS NULL AND a.channel = to_) LOOP
            INSERT INTO {schema}.deliveries (channel) VALUES (to_) RETURNING id INTO made;
            UPDATE {schema}.raised_alerts a SET delivery_id = made
            WHERE a.id = ANY (ARRAY(SELECT w.id FROM {schema}.raised_alerts w
                                    WHERE w.delivery_id IS NULL AND w.channel = to_ ORDER BY w.id LIMIT most));
        END LOOP;
    END LOOP;
    IF made IS NOT NULL THEN
        PERFORM pg_notify('{schema}', 'alerts');
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.deliver_alerts() IS 'Creates deliveries, with at most 500 alerts each, for the alerts that have none. Leaves out a channel if its last delivery was created within the last minute.';

-- VOLATILE, so that it finds what the statement that calls it has created.
CREATE OR REPLACE FUNCTION {schema}_internal.is_delivery_due() RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM {schema}.deliveries d
        WHERE d.due_at <= {schema}.db_now()
          AND NOT EXISTS (SELECT FROM {schema}.channels c WHERE c.name = d.channel AND c.paused_at IS NOT NULL));
END $$;
COMMENT ON FUNCTION {schema}_internal.is_delivery_due() IS 'Returns whether a delivery of alerts waits for a runner: it is due, or its lease has expired. Locks nothing.';

CREATE OR REPLACE FUNCTION {schema}_internal.register_worker(worker text, queue text, labels text[])
RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    seen    {schema}.runners;
    handler text := 'external:' || queue;
BEGIN
    IF worker = 'observed' THEN
        RAISE EXCEPTION 'runner %: this name is reserved for runs that another scheduler starts', worker
            USING HINT = 'Give the worker a name of its own, such as host-pid.', ERRCODE = 'invalid_parameter_value';
    END IF;
    -- started_at: since then, no two calls of the worker were more than a minute apart. A longer gap resets it,
    -- because the clock of the database may have jumped in the gap.
    INSERT INTO {schema}.runners AS r
        (id, host, pid, version, state, queues, slots, started_at, heartbeat_at, stale_after, handlers,
         labels)
    VALUES (worker, coalesce(host(inet_client_addr()), 'local'), 0, 'external', 'running', '{}', 0,
            {schema}.db_clock(), {schema}.db_clock(), {schema}.db_clock() + interval '60 s', ARRAY[handler],
            labels)
    -- db_clock() and not EXCLUDED, which was computed before a wait for the row.
    ON CONFLICT (id) DO UPDATE
    SET host = EXCLUDED.host, pid = 0, version = 'external', state = 'running', queues = '{}', slots = 0,
        running = 0, heartbeat_at = {schema}.db_clock(), stale_after = {schema}.db_clock() + interval '60 s',
        fingerprint = '{}', clock_skew = '0', labels = EXCLUDED.labels,
        started_at = CASE WHEN r.version = 'external' AND r.stale_after >= {schema}.db_clock()
                          THEN r.started_at ELSE {schema}.db_clock() END,
        handlers = CASE WHEN r.version <> 'external' OR r.stale_after < {schema}.db_clock()
                        THEN EXCLUDED.handlers
                        WHEN handler = ANY (r.handlers) THEN r.handlers
                        ELSE r.handlers || handler END
    WHERE r.version = 'external' OR r.state = 'stopped' OR r.stale_after < {schema}.db_clock()
    RETURNING * INTO seen;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'runner %: a live replica has this name', worker
            USING HINT = 'Give the worker a name of its own, such as host-pid.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN seen.started_at;
END $$;
COMMENT ON FUNCTION {schema}_internal.register_worker(text, text, text[]) IS 'Registers a worker that claims from this queue. Returns the start of the period in which it has called at least once a minute. It may steal a lease that became stale one stale_timeout after that.';

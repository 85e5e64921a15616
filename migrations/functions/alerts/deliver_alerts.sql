CREATE OR REPLACE FUNCTION {schema}_internal.alert_values(alert {schema}.raised_alerts) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('id', alert.id, 'event', alert.event, 'kind', alert.kind, 'at', alert.at,
        'since', alert.since, 'job', alert.job_name, 'scope_kind', alert.scope_kind, 'scope', alert.scope_id,
        'owner', alert.owner, 'labels', coalesce(alert.labels, '{}'), 'runner', alert.runner_id,
        'execution_id', alert.execution_id, 'plan_time', alert.plan_time, 'count', alert.count,
        'summary', alert.summary, 'details', alert.details)
$$;
COMMENT ON FUNCTION {schema}_internal.alert_values({schema}.raised_alerts) IS 'Returns an alert as an element of the payload of its delivery.';

CREATE OR REPLACE FUNCTION {schema}_internal.deliver_alerts() RETURNS integer LANGUAGE plpgsql
SET timezone = 'UTC' SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    most  constant integer := 500;
    to_   {schema}.jobs;
    taken bigint[];
    made  bigint;
    total integer := 0;
BEGIN
    -- Each channel at most once a minute, so that its alerts are grouped; the first one is not delayed.
    FOR to_ IN
        WITH RECURSIVE waiting AS (
            (SELECT a.channel FROM {schema}.raised_alerts a WHERE a.delivery_id IS NULL ORDER BY a.channel LIMIT 1)
            UNION ALL
            SELECT (SELECT a.channel FROM {schema}.raised_alerts a
                    WHERE a.delivery_id IS NULL AND a.channel > w.channel ORDER BY a.channel LIMIT 1)
            FROM waiting w WHERE w.channel IS NOT NULL
        )
        SELECT j.* FROM waiting w
        JOIN {schema}.jobs j ON j.name = 'alerts.' || w.channel AND j.queue = 'alerts' AND j.retired_at IS NULL
        WHERE NOT EXISTS (
            SELECT FROM {schema}.executions e
            WHERE (e.job_name, e.scope_kind, e.scope_id) = (j.name, 'global', 'global')
              AND e.plan_time > {schema}.db_now() - interval '2 minutes'
              -- A later one was created before the clock was set back.
              AND e.created_at > {schema}.db_now() - interval '1 minute' AND e.created_at <= {schema}.db_clock()
              AND e.requested_by = 'alerts')
        ORDER BY j.name
    LOOP
        LOOP
            taken := ARRAY(SELECT a.id FROM {schema}.raised_alerts a
                           WHERE a.delivery_id IS NULL AND a.channel = substr(to_.name, 8) ORDER BY a.id LIMIT most);
            EXIT WHEN taken = '{}';
            made := {schema}_internal.create_message(to_, 'global', 'global', NULL, (
                SELECT jsonb_build_object('channel', substr(to_.name, 8), 'ledger',
                           (SELECT i.ledger_id FROM {schema}.identity i),
                           'alerts', jsonb_agg({schema}_internal.alert_values(a) ORDER BY a.id))
                FROM {schema}.raised_alerts a WHERE a.id = ANY (taken)), NULL, 'alerts');
            UPDATE {schema}.raised_alerts a SET delivery_id = made WHERE a.id = ANY (taken);
            total := total + 1;
        END LOOP;
    END LOOP;
    IF total > 0 THEN
        PERFORM pg_notify('{schema}', 'alerts');
    END IF;
    RETURN total;
END $$;
COMMENT ON FUNCTION {schema}_internal.deliver_alerts() IS 'Creates deliveries, with at most 500 alerts each, for the alerts that have none. Leaves out a channel if its last delivery was created within the last minute. Returns the number of deliveries.';

-- VOLATILE, so that it finds what the statement that calls it has created.
CREATE OR REPLACE FUNCTION {schema}_internal.is_delivery_due() RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM {schema}.jobs j
        WHERE j.name >= 'alerts.' AND j.name < 'alerts/' AND j.queue = 'alerts'
          AND (EXISTS (SELECT FROM {schema}.executions e
                       WHERE e.job_name = j.name AND e.next_attempt_at <= {schema}.db_now())
               OR EXISTS (SELECT FROM {schema}.executions e
                          WHERE e.status = 'RUNNING' AND e.job_name = j.name AND e.stale_after <= {schema}.db_now())));
END $$;
COMMENT ON FUNCTION {schema}_internal.is_delivery_due() IS 'Returns whether a delivery of alerts waits for a runner: it is due, or its lease is stale. Locks nothing.';

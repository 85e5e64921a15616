-- The alerts of a delivery are read when it is claimed, so that a redaction also changes what is still to be sent. Only
-- raise_alerts() writes alerts: receivers trust the signature of a message. A test has one alert, which is not stored.
CREATE OR REPLACE FUNCTION {schema}_internal.delivery_message(delivery {schema}.deliveries) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
    SELECT jsonb_build_object(
        'channel', delivery.channel, 'ledger', (SELECT i.ledger_id FROM {schema}.identity i),
        'alerts', coalesce(jsonb_agg(jsonb_build_object(
            'id', a.id, 'event', a.event, 'kind', a.kind, 'at', a.at, 'since', a.since, 'job', a.job_name,
            'scope_kind', a.scope_kind, 'scope', a.scope_id, 'owner', a.owner, 'labels', coalesce(a.labels, '{}'),
            'runbook', (SELECT j.runbook FROM {schema}.jobs j WHERE j.name = a.job_name), 'runner', a.runner_id, 'execution_id', a.execution_id, 'plan_time', a.plan_time, 'count', a.count,
            'summary', a.summary, 'details', a.details) ORDER BY a.id), '[]'))
    FROM (SELECT r.* FROM {schema}.raised_alerts r WHERE r.delivery_id = delivery.id
          UNION ALL
          SELECT t.* FROM jsonb_populate_record(NULL::{schema}.raised_alerts, jsonb_build_object(
              'id', 0, 'event', 'test', 'kind', 'opened', 'at', delivery.created_at, 'since', delivery.created_at,
              'count', 1, 'details', '{}'::jsonb,
              'summary', format('Test of the channel %s, requested by %s', delivery.channel, delivery.requested_by))) t
          WHERE delivery.requested_by IS NOT NULL) a
$$;
COMMENT ON FUNCTION {schema}_internal.delivery_message({schema}.deliveries) IS 'Returns the message of a delivery: its channel, this ledger, and its alerts.';

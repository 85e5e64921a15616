CREATE OR REPLACE FUNCTION {schema}_internal.alert_rules(OUT job_name text, OUT channel text, OUT event text,
    OUT after bigint, OUT remind interval, OUT opens boolean, OUT closes boolean, OUT paused boolean, OUT owner text,
    OUT labels jsonb, OUT grace interval)
RETURNS SETOF record LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Of several rules for one event and channel, the first one holds. recovered is the end of failed. A rule without
    -- events has the default ones, and its state skipped opens after three overlaps in a row (see observe_skips).
    SELECT DISTINCT ON (j.name, r.rule ->> 'channel', e.state)
           j.name, r.rule ->> 'channel', e.state,
           CASE WHEN e.state = 'failed' THEN coalesce((r.rule ->> 'after')::bigint, 1)
                WHEN e.state = 'skipped' AND o.is_default THEN 3 ELSE 1 END,
           (r.rule ->> 'remind')::interval, e.state <> 'failed' OR o.events ? 'failed',
           e.state <> 'failed' OR o.events ? 'recovered',
           coalesce(j.paused_at IS NOT NULL AND coalesce(j.paused_until > {schema}.db_now(), true), false)
               OR EXISTS (SELECT FROM {schema}.queues q WHERE q.name = j.queue AND q.paused_at IS NOT NULL),
           j.owner, j.labels, j.grace
    FROM {schema}.jobs j
    CROSS JOIN LATERAL jsonb_array_elements(j.notify) WITH ORDINALITY r(rule, place)
    CROSS JOIN LATERAL (
        SELECT coalesce(nullif(r.rule -> 'on', 'null'), '["failed", "recovered", "overdue", "skipped"]') AS events,
               coalesce(r.rule -> 'on', 'null') = 'null' AS is_default) o
    CROSS JOIN LATERAL (SELECT DISTINCT CASE x.name WHEN 'recovered' THEN 'failed' ELSE x.name END AS state
                        FROM jsonb_array_elements_text(o.events) x(name)) e
    WHERE j.notify IS NOT NULL AND j.retired_at IS NULL
    ORDER BY j.name, r.rule ->> 'channel', e.state, r.place
$$;
COMMENT ON FUNCTION {schema}_internal.alert_rules() IS 'Returns the rules of all jobs that are not retired: one row for each job, channel and event whose state is tracked.';

CREATE OR REPLACE FUNCTION {schema}_internal.ledger_channels(of_event text) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(c.name ORDER BY c.name), '{}') FROM {schema}.channels c
    WHERE c.settings -> 'on_ledger' ? of_event
$$;
COMMENT ON FUNCTION {schema}_internal.ledger_channels(text) IS 'Returns the channels that subscribe to this event of the ledger: violation, runner_lost or runner_failing.';

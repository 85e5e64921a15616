-- The last delivery is read by its key, of the few channels that there are.
CREATE OR REPLACE VIEW {schema}.channels AS
SELECT substr(j.name, 8) AS name, j.target #>> '{channel,kind}' AS kind, j.target #> '{channel,on_ledger}' AS on_ledger,
       j.source, j.paused_at, d.id AS delivery_id, d.status AS delivery_status,
       coalesce(d.finished_at, d.started_at, d.created_at) AS delivery_at,
       CASE WHEN d.error_code IS NOT NULL THEN concat_ws(': ', d.error_code, split_part(d.error_msg, E'\n', 1)) END
           AS delivery_error,
       (SELECT i.ledger_id FROM {schema}.identity i) AS ledger
FROM {schema}.jobs j
LEFT JOIN LATERAL (
    SELECT e.* FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (j.name, 'global', 'global')
    ORDER BY e.plan_time DESC LIMIT 1) d ON true
WHERE j.queue = 'alerts' AND starts_with(j.name, 'alerts.') AND j.retired_at IS NULL;
COMMENT ON VIEW {schema}.channels IS 'Channels of alerts, one row each, with the last delivery. A channel is the job alerts.NAME. Use ORDER BY name.';
COMMENT ON COLUMN {schema}.channels.name IS 'The channel.';
COMMENT ON COLUMN {schema}.channels.kind IS 'webhook, slack, email, command, python or apprise.';
COMMENT ON COLUMN {schema}.channels.on_ledger IS 'Events of the ledger that it receives, a JSON array; NULL: none.';
COMMENT ON COLUMN {schema}.channels.source IS 'File or App that declared it; NULL: SQL.';
COMMENT ON COLUMN {schema}.channels.paused_at IS 'When its job was paused, so that nothing is delivered; NULL: it is not paused.';
COMMENT ON COLUMN {schema}.channels.delivery_id IS 'Id of the execution that is its last delivery; NULL: there is none.';
COMMENT ON COLUMN {schema}.channels.delivery_status IS 'Status of that execution.';
COMMENT ON COLUMN {schema}.channels.delivery_at IS 'When that execution ended; otherwise when it started or was created.';
COMMENT ON COLUMN {schema}.channels.ledger IS 'Id of this ledger, which each message names.';
COMMENT ON COLUMN {schema}.channels.delivery_error IS 'Error of that execution: the code, and the first line of the message.';

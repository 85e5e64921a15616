-- The last delivery is read by its key, of the few channels that there are.
CREATE OR REPLACE VIEW {schema}.channel_status AS
SELECT c.name, c.settings ->> 'kind' AS kind, c.settings -> 'on_ledger' AS on_ledger, c.source, c.paused_at,
       d.id AS delivery_id, d.status AS delivery_status,
       coalesce(d.finished_at, d.started_at, d.created_at) AS delivery_at,
       CASE WHEN d.error_code IS NOT NULL THEN concat_ws(': ', d.error_code, split_part(d.error_msg, E'\n', 1)) END
           AS delivery_error
FROM {schema}.channels c
LEFT JOIN LATERAL (SELECT n.* FROM {schema}.deliveries n WHERE n.channel = c.name
                   ORDER BY n.created_at DESC, n.id DESC LIMIT 1) d ON true;
COMMENT ON VIEW {schema}.channel_status IS 'Channels of alerts, one row each, with the last delivery. Use ORDER BY name.';
COMMENT ON COLUMN {schema}.channel_status.name IS 'The channel.';
COMMENT ON COLUMN {schema}.channel_status.kind IS 'webhook, slack, email, command, python or apprise.';
COMMENT ON COLUMN {schema}.channel_status.on_ledger IS 'Events of the ledger that it receives, a JSON array; NULL: none.';
COMMENT ON COLUMN {schema}.channel_status.source IS 'File or App that declared it; NULL: SQL.';
COMMENT ON COLUMN {schema}.channel_status.paused_at IS 'When it was paused, so that nothing is delivered; NULL: it is not paused.';
COMMENT ON COLUMN {schema}.channel_status.delivery_id IS 'Id of its last delivery; NULL: there is none.';
COMMENT ON COLUMN {schema}.channel_status.delivery_status IS 'Status of that delivery.';
COMMENT ON COLUMN {schema}.channel_status.delivery_at IS 'When that delivery ended; otherwise when it started or was created.';
COMMENT ON COLUMN {schema}.channel_status.delivery_error IS 'Error of that delivery: the code, and the first line of the message.';

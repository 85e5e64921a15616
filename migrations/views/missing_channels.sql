CREATE OR REPLACE VIEW {schema}.missing_channels AS
SELECT DISTINCT r.rule ->> 'channel' AS channel, j.name AS job_name
FROM {schema}.jobs j CROSS JOIN LATERAL jsonb_array_elements(j.notify) r(rule)
WHERE j.notify IS NOT NULL AND j.retired_at IS NULL AND NOT EXISTS (
    SELECT FROM {schema}.channels c WHERE c.name = r.rule ->> 'channel');
COMMENT ON VIEW {schema}.missing_channels IS 'Channels that jobs name in notify, but that do not exist. Their alerts wait.';
COMMENT ON COLUMN {schema}.missing_channels.channel IS 'The channel.';
COMMENT ON COLUMN {schema}.missing_channels.job_name IS 'The job that names it.';

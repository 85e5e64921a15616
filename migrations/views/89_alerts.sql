-- delivery_status is read by id, of the few rows that a page shows.
CREATE OR REPLACE VIEW {schema}.alerts AS
SELECT a.id, a.at, a.event, a.kind, a.channel, a.job_name, a.scope_kind, a.scope_id, a.runner_id, a.execution_id,
       a.plan_time, a.summary, a.delivery_id,
       (SELECT e.status FROM {schema}.executions e WHERE e.id = a.delivery_id) AS delivery_status,
       (SELECT e.finished_at FROM {schema}.executions e WHERE e.id = a.delivery_id AND e.status = 'SUCCESS')
           AS delivered_at,
       a.owner, a.labels
FROM {schema}.raised_alerts a;
COMMENT ON VIEW {schema}.alerts IS 'Alerts: for each channel, one row for each change of a state and for each reminder. Use ORDER BY at, id.';
COMMENT ON COLUMN {schema}.alerts.id IS 'Id of the alert. Receivers recognise a repeated delivery by it.';
COMMENT ON COLUMN {schema}.alerts.at IS 'When it was raised.';
COMMENT ON COLUMN {schema}.alerts.event IS 'failed, recovered, overdue, late, skipped, deadline, violation or runner_lost.';
COMMENT ON COLUMN {schema}.alerts.kind IS 'opened, closed or reminder.';
COMMENT ON COLUMN {schema}.alerts.channel IS 'The channel to which it is delivered.';
COMMENT ON COLUMN {schema}.alerts.job_name IS 'The job; NULL: the alert is about the ledger.';
COMMENT ON COLUMN {schema}.alerts.scope_kind IS 'Kind of the scope; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.alerts.scope_id IS 'Id of the scope; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.alerts.runner_id IS 'The runner; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.alerts.execution_id IS 'The execution; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.alerts.plan_time IS 'The plan_time; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.alerts.summary IS 'The alert as a sentence.';
COMMENT ON COLUMN {schema}.alerts.delivery_id IS 'Id of the execution that delivers it; NULL: none has been created yet.';
COMMENT ON COLUMN {schema}.alerts.delivery_status IS 'Status of that execution; NULL: there is none, or it was pruned.';
COMMENT ON COLUMN {schema}.alerts.delivered_at IS 'When it was delivered; NULL: it was not, or the execution was pruned.';
COMMENT ON COLUMN {schema}.alerts.owner IS 'Owner of the job when the alert was raised; NULL: it had none.';
COMMENT ON COLUMN {schema}.alerts.labels IS 'Labels of the job when the alert was raised; NULL or empty: it had none.';

CREATE OR REPLACE VIEW {schema}.alert_states AS
SELECT nullif(t.job_name, '') AS job_name, nullif(t.scope_kind, '') AS scope_kind, nullif(t.scope_id, '') AS scope_id,
       nullif(t.runner_id, '') AS runner_id, t.event, t.since, t.count, t.last_alert_at, t.summary, j.owner, j.labels,
       t.channel
FROM {schema}.tracked_states t LEFT JOIN {schema}.jobs j ON j.name = t.job_name
WHERE t.since IS NOT NULL;
COMMENT ON VIEW {schema}.alert_states IS 'Open states of alerts: for each channel, one row for each event and (job, scope) or runner.';
COMMENT ON COLUMN {schema}.alert_states.job_name IS 'The job; NULL: the state is about the ledger.';
COMMENT ON COLUMN {schema}.alert_states.scope_kind IS 'Kind of the scope; NULL: the state is not about one.';
COMMENT ON COLUMN {schema}.alert_states.scope_id IS 'Id of the scope; NULL: the state is not about one.';
COMMENT ON COLUMN {schema}.alert_states.runner_id IS 'The runner; NULL: the state is not about one.';
COMMENT ON COLUMN {schema}.alert_states.event IS 'failed, overdue, late, skipped, deadline, violation or runner_lost.';
COMMENT ON COLUMN {schema}.alert_states.since IS 'When the state was opened.';
COMMENT ON COLUMN {schema}.alert_states.count IS 'How often the event has occurred in a row.';
COMMENT ON COLUMN {schema}.alert_states.last_alert_at IS 'When an alert or a reminder was last raised for it.';
COMMENT ON COLUMN {schema}.alert_states.summary IS 'The last occurrence, as a sentence.';
COMMENT ON COLUMN {schema}.alert_states.owner IS 'Present owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.alert_states.labels IS 'Present labels of the job; NULL or empty: it has none.';
COMMENT ON COLUMN {schema}.alert_states.channel IS 'The channel to which its changes are sent.';

CREATE OR REPLACE VIEW {schema}.missing_channels AS
SELECT DISTINCT r.rule ->> 'channel' AS channel, j.name AS job_name
FROM {schema}.jobs j CROSS JOIN LATERAL jsonb_array_elements(j.notify) r(rule)
WHERE j.notify IS NOT NULL AND j.retired_at IS NULL AND NOT EXISTS (
    SELECT FROM {schema}.jobs c
    WHERE c.name = 'alerts.' || (r.rule ->> 'channel') AND c.queue = 'alerts' AND c.retired_at IS NULL);
COMMENT ON VIEW {schema}.missing_channels IS 'Channels that jobs name in notify, but that do not exist. Their alerts wait.';
COMMENT ON COLUMN {schema}.missing_channels.channel IS 'The channel.';
COMMENT ON COLUMN {schema}.missing_channels.job_name IS 'The job that names it.';

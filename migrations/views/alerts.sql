CREATE OR REPLACE VIEW {schema}.alerts AS
SELECT a.id, a.at, a.event, a.kind, a.channel, a.job_name, a.scope_kind, a.scope_id, a.runner_id, a.execution_id,
       a.plan_time, a.summary, a.delivery_id,
       d.status AS delivery_status, CASE d.status WHEN 'SUCCESS' THEN d.finished_at END AS delivered_at,
       a.owner, a.labels
FROM {schema}.raised_alerts a LEFT JOIN {schema}.deliveries d ON d.id = a.delivery_id;
COMMENT ON VIEW {schema}.alerts IS 'Alerts: for each channel, one row for each change of a state and for each reminder. Use ORDER BY at, id.';
COMMENT ON COLUMN {schema}.alerts.id IS 'Id of the alert. Receivers recognise a repeated delivery by it.';
COMMENT ON COLUMN {schema}.alerts.at IS 'When it was raised.';
COMMENT ON COLUMN {schema}.alerts.event IS 'failed, recovered, overdue, late, skipped, deadline, violation, runner_lost or runner_failing.';
COMMENT ON COLUMN {schema}.alerts.kind IS 'opened, closed or reminder.';
COMMENT ON COLUMN {schema}.alerts.channel IS 'The channel to which it is delivered.';
COMMENT ON COLUMN {schema}.alerts.job_name IS 'The job; NULL: the alert is about the ledger.';
COMMENT ON COLUMN {schema}.alerts.scope_kind IS 'Kind of the scope; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.alerts.scope_id IS 'Id of the scope; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.alerts.runner_id IS 'The runner; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.alerts.execution_id IS 'The execution; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.alerts.plan_time IS 'The plan_time; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.alerts.summary IS 'The alert as a sentence.';
COMMENT ON COLUMN {schema}.alerts.delivery_id IS 'Id of its delivery; NULL: none has been created yet.';
COMMENT ON COLUMN {schema}.alerts.delivery_status IS 'Status of that delivery; NULL: there is none, or it was pruned.';
COMMENT ON COLUMN {schema}.alerts.delivered_at IS 'When it was delivered; NULL: it was not, or the delivery was pruned.';
COMMENT ON COLUMN {schema}.alerts.owner IS 'Owner of the job when the alert was raised; NULL: it had none.';
COMMENT ON COLUMN {schema}.alerts.labels IS 'Labels of the job when the alert was raised; NULL or empty: it had none.';

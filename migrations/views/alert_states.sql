CREATE OR REPLACE VIEW {schema}.alert_states AS
SELECT nullif(t.job_name, '') AS job_name, nullif(t.scope_kind, '') AS scope_kind, nullif(t.scope_id, '') AS scope_id,
       nullif(t.runner_id, '') AS runner_id, t.event, t.since, t.count, t.last_alert_at, t.summary, j.owner, j.labels,
       t.channel, t.execution_id, t.plan_time
FROM {schema}.tracked_states t LEFT JOIN {schema}.jobs j ON j.name = t.job_name
WHERE t.since IS NOT NULL;
COMMENT ON VIEW {schema}.alert_states IS 'Open states of alerts: for each channel, one row for each event and (job, scope) or runner.';
COMMENT ON COLUMN {schema}.alert_states.job_name IS 'The job; NULL: the state is about the ledger.';
COMMENT ON COLUMN {schema}.alert_states.scope_kind IS 'Kind of the scope; NULL: the state is not about one.';
COMMENT ON COLUMN {schema}.alert_states.scope_id IS 'Id of the scope; NULL: the state is not about one.';
COMMENT ON COLUMN {schema}.alert_states.runner_id IS 'The runner; NULL: the state is not about one.';
COMMENT ON COLUMN {schema}.alert_states.event IS 'failed, overdue, late, skipped, deadline, violation, runner_lost or runner_failing.';
COMMENT ON COLUMN {schema}.alert_states.since IS 'When the state was opened.';
COMMENT ON COLUMN {schema}.alert_states.count IS 'How often the event has occurred in a row.';
COMMENT ON COLUMN {schema}.alert_states.last_alert_at IS 'When an alert or a reminder was last raised for it.';
COMMENT ON COLUMN {schema}.alert_states.summary IS 'The last occurrence, as a sentence.';
COMMENT ON COLUMN {schema}.alert_states.owner IS 'Current owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.alert_states.labels IS 'Current labels of the job; NULL or empty: it has none.';
COMMENT ON COLUMN {schema}.alert_states.channel IS 'The channel to which its changes are sent.';
COMMENT ON COLUMN {schema}.alert_states.execution_id IS 'The execution that the last occurrence is about; NULL: none.';
COMMENT ON COLUMN {schema}.alert_states.plan_time IS 'The plan_time that the last occurrence is about; NULL: none.';

CREATE OR REPLACE VIEW {schema}.running AS
SELECT e.id, e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.runner_id, e.attempt,
       e.max_attempts, e.trigger, e.queue, e.started_at,
       {schema}.db_now() - e.started_at AS running_for,
       {schema}.db_now() - e.heartbeat_at AS heartbeat_age,
       e.stale_after - {schema}.db_now() AS lease_left,
       e.cancel_requested_at, e.cancel_requested_by,
       (SELECT j.owner FROM {schema}.jobs j WHERE j.name = e.job_name) AS owner,
       (SELECT j.labels FROM {schema}.jobs j WHERE j.name = e.job_name) AS labels,
       p.done AS progress_done, p.total AS progress_total, p.text AS progress_text, p.reported_at AS progress_at
FROM {schema}.executions e
LEFT JOIN {schema}.execution_progress p ON p.execution_id = e.id AND p.lease_token = e.lease_token
WHERE e.status = 'RUNNING';
COMMENT ON VIEW {schema}.running IS 'Executions that are RUNNING now.';
COMMENT ON COLUMN {schema}.running.id IS 'Id of the execution.';
COMMENT ON COLUMN {schema}.running.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.running.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.running.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.running.plan_time IS 'Nominal instant of the firing.';
COMMENT ON COLUMN {schema}.running.runner_id IS 'Runner that holds the lease.';
COMMENT ON COLUMN {schema}.running.attempt IS 'Number of the attempt.';
COMMENT ON COLUMN {schema}.running.max_attempts IS 'Attempts in all.';
COMMENT ON COLUMN {schema}.running.trigger IS 'Origin of the execution: schedule, manual, backfill, enqueue.';
COMMENT ON COLUMN {schema}.running.queue IS 'Its queue.';
COMMENT ON COLUMN {schema}.running.started_at IS 'When this attempt was claimed.';
COMMENT ON COLUMN {schema}.running.running_for IS 'Time since this attempt was claimed.';
COMMENT ON COLUMN {schema}.running.heartbeat_age IS 'Time since the last renewal of the lease.';
COMMENT ON COLUMN {schema}.running.lease_left IS 'Time until the lease ends; negative: it is stale, and will be stolen or swept.';
COMMENT ON COLUMN {schema}.running.cancel_requested_at IS 'When its cancellation was requested.';
COMMENT ON COLUMN {schema}.running.cancel_requested_by IS 'The person who requested the cancellation.';
COMMENT ON COLUMN {schema}.running.owner IS 'Current owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.running.labels IS 'Current labels of the job; NULL or empty: it has none.';
COMMENT ON COLUMN {schema}.running.progress_done IS 'Units of work that it has reported as done; NULL: it reported none.';
COMMENT ON COLUMN {schema}.running.progress_total IS 'Units of work in all, as it reported; NULL: not known.';
COMMENT ON COLUMN {schema}.running.progress_text IS 'Text of the last report: what the handler is doing; NULL: none was given.';
COMMENT ON COLUMN {schema}.running.progress_at IS 'When it last reported.';

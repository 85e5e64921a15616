CREATE OR REPLACE VIEW {schema}.breaches AS
SELECT b.id, b.job_name, b.scope_kind, b.scope_id, b.plan_time, b.execution_id, b.kind, b.deadline, b.breached_at,
       b.closed_at,
       (SELECT j.owner FROM {schema}.jobs j WHERE j.name = b.job_name) AS owner,
       (SELECT j.labels FROM {schema}.jobs j WHERE j.name = b.job_name) AS labels
FROM {schema}.deadline_breaches b
WHERE b.closed_at IS NULL OR b.closed_at > b.deadline;
COMMENT ON VIEW {schema}.breaches IS 'Missed deadlines of jobs, one row each.';
COMMENT ON COLUMN {schema}.breaches.id IS 'Id of the breach.';
COMMENT ON COLUMN {schema}.breaches.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.breaches.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.breaches.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.breaches.plan_time IS 'The plan_time.';
COMMENT ON COLUMN {schema}.breaches.execution_id IS 'The execution; NULL: there was none.';
COMMENT ON COLUMN {schema}.breaches.kind IS 'The policy: start_by, finish_by or expect_duration.';
COMMENT ON COLUMN {schema}.breaches.deadline IS 'The deadline. With expect_duration: when the attempt had run for the expected duration.';
COMMENT ON COLUMN {schema}.breaches.breached_at IS 'When the breach was recorded.';
COMMENT ON COLUMN {schema}.breaches.closed_at IS 'When the deadline was met late; NULL: it was not.';
COMMENT ON COLUMN {schema}.breaches.owner IS 'Current owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.breaches.labels IS 'Current labels of the job; NULL or empty: it has none.';

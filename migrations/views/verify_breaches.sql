CREATE OR REPLACE VIEW {schema}.verify_breaches AS
SELECT b.job_name, b.scope_kind, b.scope_id, b.plan_time, b.kind, b.deadline, b.closed_at, b.look_at
FROM {schema}.deadline_breaches b;
COMMENT ON VIEW {schema}.verify_breaches IS 'Breaches for verify, including those whose deadline turned out to be met in time.';
COMMENT ON COLUMN {schema}.verify_breaches.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.verify_breaches.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.verify_breaches.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.verify_breaches.plan_time IS 'The plan_time.';
COMMENT ON COLUMN {schema}.verify_breaches.kind IS 'The policy: start_by, finish_by or expect_duration.';
COMMENT ON COLUMN {schema}.verify_breaches.deadline IS 'The deadline.';
COMMENT ON COLUMN {schema}.verify_breaches.closed_at IS 'When the deadline was met; NULL: it was not. If this is not after the deadline, the deadline was met in time.';
COMMENT ON COLUMN {schema}.verify_breaches.look_at IS 'When the breach is checked again; NULL: the deadline was met.';

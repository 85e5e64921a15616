CREATE OR REPLACE VIEW {schema}.unjudged_deadlines AS
SELECT d.job_name, d.scope_kind, d.scope_id, d.plan_time, d.kind, d.deadline, d.expected, d.look_at
FROM {schema}.deadlines d
UNION ALL
SELECT m.job_name, m.scope_kind, m.scope_id, m.plan_time, k.kind, NULL, NULL, m.created_at
FROM {schema}.manual_deadlines m
CROSS JOIN (VALUES ('start_by'), ('finish_by'), ('expect_duration')) k(kind);
COMMENT ON VIEW {schema}.unjudged_deadlines IS 'Deadlines that are not judged yet. A manual execution whose deadlines are not computed yet has one row for each kind.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.plan_time IS 'The plan_time.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.kind IS 'The policy: start_by, finish_by or expect_duration.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.deadline IS 'The deadline; NULL: it counts from the start of an attempt, or is not computed yet.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.expected IS 'With expect_duration: how long an attempt may run.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.look_at IS 'When it is judged, or checked again.';

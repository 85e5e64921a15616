CREATE OR REPLACE VIEW {schema}.accepted_violations AS
SELECT a.id, a.kind, a.job_name, a.scope_kind, a.scope_id, a.plan_time, a.through_plan_time,
       a.execution_id, a.reason, a.accepted_by, a.accepted_at, a.withdrawn_by, a.withdrawn_at
FROM {schema}.acceptances a;
COMMENT ON VIEW {schema}.accepted_violations IS 'Accepted violations, with the reason. A violation with this kind, scope and execution, at one of these plan_times, does not make verify fail.';
COMMENT ON COLUMN {schema}.accepted_violations.id IS 'Id of the acceptance, the argument of withdraw_acceptance().';
COMMENT ON COLUMN {schema}.accepted_violations.kind IS 'Kind of the violation.';
COMMENT ON COLUMN {schema}.accepted_violations.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.accepted_violations.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.accepted_violations.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.accepted_violations.plan_time IS 'First plan_time for which the violation is accepted.';
COMMENT ON COLUMN {schema}.accepted_violations.through_plan_time IS 'Last plan_time for which it is accepted.';
COMMENT ON COLUMN {schema}.accepted_violations.execution_id IS 'Execution that the violation names; NULL: none.';
COMMENT ON COLUMN {schema}.accepted_violations.reason IS 'Why it is accepted.';
COMMENT ON COLUMN {schema}.accepted_violations.accepted_by IS 'The person who accepted it.';
COMMENT ON COLUMN {schema}.accepted_violations.accepted_at IS 'When it was accepted.';
COMMENT ON COLUMN {schema}.accepted_violations.withdrawn_by IS 'The person who withdrew the acceptance.';
COMMENT ON COLUMN {schema}.accepted_violations.withdrawn_at IS 'When the acceptance was withdrawn; NULL: it holds.';

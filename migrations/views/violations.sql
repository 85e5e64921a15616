CREATE OR REPLACE VIEW {schema}.violations AS
SELECT v.kind, v.job_name, v.scope_kind, v.scope_id, v.plan_time, v.execution_id, v.detail
FROM (SELECT r.* FROM {schema}_internal.recent_violations() r
      UNION ALL
      SELECT p.* FROM {schema}_internal.present_violations() p) v
WHERE NOT EXISTS (
    SELECT FROM {schema}.acceptances a
    WHERE (a.kind, a.job_name, a.scope_kind, a.scope_id) = (v.kind, v.job_name, v.scope_kind, v.scope_id)
      AND v.plan_time BETWEEN a.plan_time AND a.through_plan_time
      AND a.execution_id IS NOT DISTINCT FROM v.execution_id AND a.withdrawn_at IS NULL);
COMMENT ON VIEW {schema}.violations IS 'Broken promises that SQL alone can find, in plan_times of the last 7 days and in the current state. Normally empty. cronledger verify finds the others. Accepted violations are listed in accepted_violations instead.';
COMMENT ON COLUMN {schema}.violations.kind IS 'doubled (ran and skipped, or skipped twice), early (started before due_at), overlapping, over_limit, attempts (beyond max_attempts, or a token used twice), unknown_end (run again although the end of an attempt is unknown and the job was not reentrant), window (it overlaps that of another SUCCESS, leaves a gap, or is missing), stale (RUNNING long after its lease ended, and no runner sweeps), parked (the reason for parking no longer applies), gate (an execution waits for required jobs without a row in gates, or the reverse). over_limit of a queue is also listed after its max_running was lowered, until the RUNNING executions have ended.';
COMMENT ON COLUMN {schema}.violations.job_name IS 'The job; NULL: it concerns a queue.';
COMMENT ON COLUMN {schema}.violations.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.violations.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.violations.plan_time IS 'Nominal instant of the firing; with parked the next one.';
COMMENT ON COLUMN {schema}.violations.execution_id IS 'Id of the execution; NULL: it concerns none.';
COMMENT ON COLUMN {schema}.violations.detail IS 'The violation as a sentence.';

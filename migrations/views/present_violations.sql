-- Without history, so that a page may read it at any time.
CREATE OR REPLACE VIEW {schema}.present_violations AS
SELECT v.kind, v.job_name, v.scope_kind, v.scope_id, v.plan_time, v.execution_id, v.detail
FROM {schema}_internal.present_violations() v
WHERE NOT EXISTS (
    SELECT FROM {schema}.acceptances a
    WHERE (a.kind, a.job_name, a.scope_kind, a.scope_id) = (v.kind, v.job_name, v.scope_kind, v.scope_id)
      AND v.plan_time BETWEEN a.plan_time AND a.through_plan_time
      AND a.execution_id IS NOT DISTINCT FROM v.execution_id AND a.withdrawn_at IS NULL);
COMMENT ON VIEW {schema}.present_violations IS 'The violations of the current state: over_limit (of queues), stale, parked, gate. The view violations has these too, and those of the last 7 days.';
COMMENT ON COLUMN {schema}.present_violations.kind IS 'over_limit (more RUNNING executions of a queue than its max_running; also after it was lowered, until they have ended), stale (RUNNING long after its lease ended, and no runner sweeps), parked (the reason for parking no longer applies), gate (an execution waits for required jobs without a row in gates, or the reverse).';
COMMENT ON COLUMN {schema}.present_violations.job_name IS 'The job; NULL: it concerns a queue.';
COMMENT ON COLUMN {schema}.present_violations.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.present_violations.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.present_violations.plan_time IS 'Nominal instant of the firing; with parked the next one.';
COMMENT ON COLUMN {schema}.present_violations.execution_id IS 'Id of the execution; NULL: it concerns none.';
COMMENT ON COLUMN {schema}.present_violations.detail IS 'The violation as a sentence.';

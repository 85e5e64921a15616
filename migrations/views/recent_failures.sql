CREATE OR REPLACE VIEW {schema}.recent_failures AS
SELECT e.id, e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.attempt, e.max_attempts,
       e.error_code, e.error_msg, e.next_attempt_at IS NOT NULL AS will_retry, e.next_attempt_at,
       e.runner_id, e.started_at, e.finished_at, e.duration_ms * interval '1 millisecond' AS duration,
       e.trigger, e.output,
       (SELECT j.owner FROM {schema}.jobs j WHERE j.name = e.job_name) AS owner,
       (SELECT j.labels FROM {schema}.jobs j WHERE j.name = e.job_name) AS labels
FROM {schema}.executions e
WHERE e.status = 'FAILED' AND e.finished_at > {schema}.db_now() - interval '7 days'
ORDER BY e.finished_at DESC;
COMMENT ON VIEW {schema}.recent_failures IS 'FAILED executions of the last 7 days, newest first.';
COMMENT ON COLUMN {schema}.recent_failures.id IS 'Id of the execution.';
COMMENT ON COLUMN {schema}.recent_failures.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.recent_failures.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.recent_failures.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.recent_failures.plan_time IS 'Nominal instant of the firing.';
COMMENT ON COLUMN {schema}.recent_failures.attempt IS 'Number of the attempt that failed.';
COMMENT ON COLUMN {schema}.recent_failures.max_attempts IS 'Attempts in all.';
COMMENT ON COLUMN {schema}.recent_failures.error_code IS 'Why it failed, in one word.';
COMMENT ON COLUMN {schema}.recent_failures.error_msg IS 'The error as text.';
COMMENT ON COLUMN {schema}.recent_failures.will_retry IS 'Whether there will be another attempt.';
COMMENT ON COLUMN {schema}.recent_failures.next_attempt_at IS 'When it is due; NULL: never.';
COMMENT ON COLUMN {schema}.recent_failures.runner_id IS 'Runner of the attempt that failed.';
COMMENT ON COLUMN {schema}.recent_failures.started_at IS 'When that attempt was claimed.';
COMMENT ON COLUMN {schema}.recent_failures.finished_at IS 'When it ended.';
COMMENT ON COLUMN {schema}.recent_failures.duration IS 'How long the handler ran.';
COMMENT ON COLUMN {schema}.recent_failures.trigger IS 'Origin of the execution: schedule, manual, backfill, enqueue.';
COMMENT ON COLUMN {schema}.recent_failures.output IS 'End of the output of a command.';
COMMENT ON COLUMN {schema}.recent_failures.owner IS 'Current owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.recent_failures.labels IS 'Current labels of the job; NULL or empty: it has none.';

CREATE OR REPLACE VIEW {schema}.verify_executions AS
SELECT t.job_name, t.scope_kind, t.scope_id, t.plan_time, t.id, t.trigger, t.status, t.revision,
       t.due_at, t.created_at, t.started_at, t.finished_at,
       CASE WHEN t.attempts = '[]' THEN t.attempts ELSE (
           SELECT jsonb_agg(a.entry - 'lease_token' ORDER BY a.place)
           FROM jsonb_array_elements(t.attempts) WITH ORDINALITY a(entry, place)) END AS attempts,
       t.window_start
FROM {schema}.executions t;
COMMENT ON VIEW {schema}.verify_executions IS 'Executions for verify, without payload, result and output.';
COMMENT ON COLUMN {schema}.verify_executions.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.verify_executions.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.verify_executions.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.verify_executions.plan_time IS 'Nominal UTC instant of this firing; unchanged by retries.';
COMMENT ON COLUMN {schema}.verify_executions.id IS 'Id of the execution. Use it as idempotency key for effects outside this database.';
COMMENT ON COLUMN {schema}.verify_executions.trigger IS 'Origin of the execution: schedule, manual, backfill, enqueue.';
COMMENT ON COLUMN {schema}.verify_executions.status IS 'PENDING, RUNNING, SUCCESS, FAILED, CANCELLED.';
COMMENT ON COLUMN {schema}.verify_executions.revision IS 'Revision of the job that this plan_time belongs to.';
COMMENT ON COLUMN {schema}.verify_executions.due_at IS 'plan_time + schedule_delay + jitter: when it may start.';
COMMENT ON COLUMN {schema}.verify_executions.created_at IS 'When the row was created.';
COMMENT ON COLUMN {schema}.verify_executions.started_at IS 'When the last attempt was claimed; NULL: it was never claimed, or was released.';
COMMENT ON COLUMN {schema}.verify_executions.finished_at IS 'When the last attempt ended; without started_at: when it was cancelled.';
COMMENT ON COLUMN {schema}.verify_executions.attempts IS 'Earlier attempts, with their holders and their ends: attempt, runner_id, started_at, last_seen, ended_at, error_code, error_msg.';
COMMENT ON COLUMN {schema}.verify_executions.window_start IS 'Start of the window of the last attempt, which ends before plan_time; NULL: none.';

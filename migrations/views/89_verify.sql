-- The views that verify reads, for roles that may not read tables.
CREATE OR REPLACE VIEW {schema}.verify_schedules AS
SELECT t.job_name, t.scope_kind, t.scope_id, t.planned_through, t.planned_revision, t.parked,
       t.retired_at, t.returned_at, t.created_at, t.queue, t.next_plan_time, t.next_due_at
FROM {schema}.schedules t;
COMMENT ON VIEW {schema}.verify_schedules IS 'State of planning of every (job, scope), for verify.';
COMMENT ON COLUMN {schema}.verify_schedules.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.verify_schedules.scope_kind IS 'Kind of the scope: jobs.scope_kind.';
COMMENT ON COLUMN {schema}.verify_schedules.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.verify_schedules.planned_through IS 'The cursor: every plan_time up to it has an execution or lies in a skip. It only grows.';
COMMENT ON COLUMN {schema}.verify_schedules.planned_revision IS 'Revision in force at the cursor. If job_revisions has later ones, the cursor holds for this one only.';
COMMENT ON COLUMN {schema}.verify_schedules.parked IS 'Why the row is not in the index of due rows; NULL: it is in the index.';
COMMENT ON COLUMN {schema}.verify_schedules.retired_at IS 'When the scope was retired; NULL: it is planned.';
COMMENT ON COLUMN {schema}.verify_schedules.returned_at IS 'When a retired scope came back. Both are cleared when the gap is recorded as a skip.';
COMMENT ON COLUMN {schema}.verify_schedules.created_at IS 'When the scope was created; its history starts here.';
COMMENT ON COLUMN {schema}.verify_schedules.queue IS 'Queue of the job.';
COMMENT ON COLUMN {schema}.verify_schedules.next_plan_time IS 'The first plan_time after the cursor, if it is known.';
COMMENT ON COLUMN {schema}.verify_schedules.next_due_at IS 'When the next claim plans this row; NULL: the row is parked.';

CREATE OR REPLACE VIEW {schema}.verify_executions AS
SELECT t.job_name, t.scope_kind, t.scope_id, t.plan_time, t.id, t.trigger, t.status, t.revision,
       t.due_at, t.created_at, t.started_at, t.finished_at,
       CASE WHEN t.attempts = '[]' THEN t.attempts ELSE (
           SELECT jsonb_agg(a.entry - 'lease_token' ORDER BY a.place)
           FROM jsonb_array_elements(t.attempts) WITH ORDINALITY a(entry, place)) END AS attempts
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
COMMENT ON COLUMN {schema}.verify_executions.started_at IS 'When the last attempt was claimed.';
COMMENT ON COLUMN {schema}.verify_executions.finished_at IS 'When the last attempt ended.';
COMMENT ON COLUMN {schema}.verify_executions.attempts IS 'Earlier attempts, with their holders and their ends: attempt, runner_id, started_at, last_seen, ended_at, error_code, error_msg.';

CREATE OR REPLACE VIEW {schema}.verify_skips AS
SELECT t.job_name, t.scope_kind, t.scope_id, t.from_plan_time, t.through_plan_time, t.count,
       t.reason, t.blocked_by, t.revision, t.created_at,
       (SELECT j.owner FROM {schema}.jobs j WHERE j.name = t.job_name) AS owner,
       (SELECT j.labels FROM {schema}.jobs j WHERE j.name = t.job_name) AS labels
FROM {schema}.skips t;
COMMENT ON VIEW {schema}.verify_skips IS 'Skips for verify.';
COMMENT ON COLUMN {schema}.verify_skips.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.verify_skips.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.verify_skips.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.verify_skips.from_plan_time IS 'First plan_time of the range.';
COMMENT ON COLUMN {schema}.verify_skips.through_plan_time IS 'Last plan_time of the range.';
COMMENT ON COLUMN {schema}.verify_skips.count IS 'Number of plan_times in the range.';
COMMENT ON COLUMN {schema}.verify_skips.reason IS 'overlap, superseded (a newer one ran), missed, paused, retired.';
COMMENT ON COLUMN {schema}.verify_skips.blocked_by IS 'Execution id that was RUNNING, with reason overlap.';
COMMENT ON COLUMN {schema}.verify_skips.revision IS 'Revision that the plan_times belong to.';
COMMENT ON COLUMN {schema}.verify_skips.created_at IS 'When the range began.';
COMMENT ON COLUMN {schema}.verify_skips.owner IS 'Present owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.verify_skips.labels IS 'Present labels of the job; NULL or empty: it has none.';

-- Both halves return the same types, so that conditions and orders on the columns reach the indexes.
-- owner and labels are subqueries, because a join would keep conditions and orders from the indexes.
-- The view is not ordered: use ORDER BY plan_time.
CREATE OR REPLACE VIEW {schema}.ledger AS
SELECT l.kind, l.job_name, l.scope_kind, l.scope_id, l.plan_time, l.through_plan_time, l.count, l.outcome,
       l.reason, l.id, l.attempt, l.trigger, l.started_at, l.finished_at, l.duration, l.runner_id, l.revision,
       l.detail, l.owner, l.labels
FROM (
SELECT 'execution'::text AS kind, e.job_name, e.scope_kind, e.scope_id, e.plan_time,
       e.plan_time AS through_plan_time, 1::bigint AS count, e.status AS outcome,
       e.error_code AS reason, e.id, e.attempt, e.trigger, e.started_at, e.finished_at,
       e.duration_ms * interval '1 millisecond' AS duration, e.runner_id, e.revision,
       CASE e.status
           WHEN 'PENDING' THEN format('due %s, has not started yet',
                                      {schema}_internal.utc_text(e.due_at))
           WHEN 'RUNNING' THEN format('attempt %s of %s runs on %s', e.attempt, e.max_attempts, e.runner_id)
           WHEN 'SUCCESS' THEN format('attempt %s of %s succeeded on %s', e.attempt, e.max_attempts, e.runner_id)
           WHEN 'FAILED' THEN format('attempt %s of %s failed%s: %s; %s', e.attempt, e.max_attempts,
                                     ' on ' || e.runner_id, coalesce(e.error_msg, e.error_code),
                                     coalesce('retried from ' || {schema}_internal.utc_text(e.next_attempt_at),
                                              'not retried'))
           ELSE CASE e.error_code WHEN 'window_processed' THEN 'not run: ' || e.error_msg
                ELSE format('cancelled by %s', coalesce(e.cancel_requested_by, 'its runner')) END
       END AS detail,
       (SELECT j.owner FROM {schema}.jobs j WHERE j.name = e.job_name) AS owner,
       (SELECT j.labels FROM {schema}.jobs j WHERE j.name = e.job_name) AS labels
FROM {schema}.executions e
UNION ALL
SELECT 'skip'::text, k.job_name, k.scope_kind, k.scope_id, k.from_plan_time,
       k.through_plan_time, k.count, 'SKIPPED'::text,
       k.reason, NULL::bigint, NULL::integer, NULL::text, NULL::timestamptz, NULL::timestamptz,
       NULL::interval, NULL::text, k.revision,
       format('%s did not run: %s', CASE k.count WHEN 1 THEN '1 plan_time' ELSE k.count || ' plan_times' END,
              CASE k.reason
                  WHEN 'overlap' THEN format('execution %s was RUNNING', k.blocked_by)
                  WHEN 'superseded' THEN 'a newer plan_time ran instead'
                  WHEN 'missed' THEN 'grace passed before a start, and catch_up did not apply, or the definition was invalid'
                  WHEN 'paused' THEN 'the job was paused'
                  WHEN 'operator' THEN format('an operator skipped it (%s)', k.detail)
                  WHEN 'not_reported' THEN 'no start was reported within grace'
                  WHEN 'upstream' THEN format('it waited for a job that it requires: %s', k.detail)
                  WHEN 'host_absent' THEN format('no replica of the host %s had checked in by the end of grace', k.scope_id)
                  WHEN 'calendar' THEN format('its calendar excludes this day (%s)', k.detail)
                  ELSE 'the job or its scope was retired' END),
       (SELECT j.owner FROM {schema}.jobs j WHERE j.name = k.job_name),
       (SELECT j.labels FROM {schema}.jobs j WHERE j.name = k.job_name)
FROM {schema}.skips k
) l
-- Always true: the condition of executions_plan_time. A half with a condition of its own would be sorted as a whole.
WHERE l.kind = 'skip' OR l.attempt >= 0;
COMMENT ON VIEW {schema}.ledger IS 'Executions and skips of all jobs: the outcome of every plan_time. Use ORDER BY plan_time.';
COMMENT ON COLUMN {schema}.ledger.kind IS 'execution or skip.';
COMMENT ON COLUMN {schema}.ledger.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.ledger.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.ledger.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.ledger.plan_time IS 'Nominal instant of the firing; of a skip, the first one.';
COMMENT ON COLUMN {schema}.ledger.through_plan_time IS 'Last plan_time of the row; of an execution, its plan_time.';
COMMENT ON COLUMN {schema}.ledger.count IS 'Number of plan_times in the row.';
COMMENT ON COLUMN {schema}.ledger.outcome IS 'Status of the execution, or SKIPPED.';
COMMENT ON COLUMN {schema}.ledger.reason IS 'Reason of the skip, or error_code of the execution.';
COMMENT ON COLUMN {schema}.ledger.id IS 'Id of the execution; NULL for a skip.';
COMMENT ON COLUMN {schema}.ledger.attempt IS 'Attempts begun.';
COMMENT ON COLUMN {schema}.ledger.trigger IS 'Origin of the execution: schedule, manual, backfill, enqueue.';
COMMENT ON COLUMN {schema}.ledger.started_at IS 'When the last attempt was claimed; NULL: it was never claimed, or was released.';
COMMENT ON COLUMN {schema}.ledger.finished_at IS 'When the last attempt ended; without started_at: when it was cancelled.';
COMMENT ON COLUMN {schema}.ledger.duration IS 'How long the handler ran.';
COMMENT ON COLUMN {schema}.ledger.runner_id IS 'Runner of the last attempt.';
COMMENT ON COLUMN {schema}.ledger.revision IS 'Revision of the job that the plan_time belongs to.';
COMMENT ON COLUMN {schema}.ledger.detail IS 'The outcome as a sentence.';
COMMENT ON COLUMN {schema}.ledger.owner IS 'Current owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.ledger.labels IS 'Current labels of the job; NULL or empty: it has none.';

-- Executions for people: all columns except the payload and the lease token, because the token permits writes
-- to the row. attempts has no lease tokens either.
CREATE OR REPLACE VIEW {schema}.execution_status AS
SELECT e.id, e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.status, e.trigger, e.revision, e.queue,
       e.due_at, e.group_id, e.enqueue_key, e.attempt, e.max_attempts, e.next_attempt_at, e.runner_id,
       e.heartbeat_at, e.stale_after, e.started_at, e.finished_at, e.duration_ms, e.rows_affected,
       e.watermark, e.result, e.result_taken_at, e.output, length(e.output) AS output_characters,
       e.error_code, e.error_msg, e.cancel_requested_at, e.cancel_requested_by, e.requested_by,
       e.created_at, e.updated_at,
       (SELECT coalesce(jsonb_agg(a.entry - 'lease_token' ORDER BY a.place), '[]')
        FROM jsonb_array_elements(e.attempts) WITH ORDINALITY a(entry, place)) AS attempts,
       CASE WHEN e.attempts = '[]' THEN e.started_at
            ELSE (e.attempts #>> '{0,started_at}')::timestamptz END AS first_started_at,
       (SELECT j.owner FROM {schema}.jobs j WHERE j.name = e.job_name) AS owner,
       (SELECT j.labels FROM {schema}.jobs j WHERE j.name = e.job_name) AS labels,
       e.traceparent, e.trace_id, e.redacted_at, e.window_start, e.gated_at, e.waits_until,
       CASE WHEN e.status = 'PENDING' AND e.next_attempt_at IS NULL THEN coalesce((
           SELECT g.missing FROM {schema}.gates g
           WHERE (g.job_name, g.scope_kind, g.scope_id, g.plan_time)
               = (e.job_name, e.scope_kind, e.scope_id, e.plan_time)), 'the jobs that it requires') END AS waits_for,
       p.done AS progress_done, p.total AS progress_total, p.text AS progress_text, p.reported_at AS progress_at
FROM {schema}.executions e
LEFT JOIN {schema}.execution_progress p
    ON p.execution_id = e.id AND p.lease_token = e.lease_token AND e.status IN ('RUNNING', 'FAILED', 'CANCELLED')
WHERE e.attempt >= 0;

  -- always true: the condition of executions_plan_time
COMMENT ON VIEW {schema}.execution_status IS 'Executions, one row each, without payload and lease token.';
COMMENT ON COLUMN {schema}.execution_status.id IS 'Id of the execution. Use it as idempotency key for effects outside this database.';
COMMENT ON COLUMN {schema}.execution_status.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.execution_status.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.execution_status.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.execution_status.plan_time IS 'Nominal UTC instant of this firing; unchanged by retries.';
COMMENT ON COLUMN {schema}.execution_status.status IS 'PENDING, RUNNING, SUCCESS, FAILED, CANCELLED.';
COMMENT ON COLUMN {schema}.execution_status.trigger IS 'Origin of the execution: schedule, manual, backfill, enqueue.';
COMMENT ON COLUMN {schema}.execution_status.revision IS 'Revision of the job that this plan_time belongs to.';
COMMENT ON COLUMN {schema}.execution_status.queue IS 'Queue of the job when the row was created.';
COMMENT ON COLUMN {schema}.execution_status.due_at IS 'plan_time + schedule_delay + jitter: when it may start.';
COMMENT ON COLUMN {schema}.execution_status.group_id IS 'Group of executions that are followed as one.';
COMMENT ON COLUMN {schema}.execution_status.enqueue_key IS 'Key it was enqueued with: at most one execution of a key waits. Empty: enqueued with a watermark only. NULL: nothing is merged with it.';
COMMENT ON COLUMN {schema}.execution_status.attempt IS 'Counts the claims; 0: never claimed.';
COMMENT ON COLUMN {schema}.execution_status.max_attempts IS 'Copied from the job when the row was created; one more for each attempt that a drain released.';
COMMENT ON COLUMN {schema}.execution_status.next_attempt_at IS 'PENDING: due_at, or later if it has waited for required jobs, or if its handler was not ready; NULL means that it waits for required jobs. FAILED: when it is retried, NULL means never. Otherwise NULL.';
COMMENT ON COLUMN {schema}.execution_status.runner_id IS 'Runner that holds the lease or held the last one.';
COMMENT ON COLUMN {schema}.execution_status.heartbeat_at IS 'Last renewal of the lease.';
COMMENT ON COLUMN {schema}.execution_status.stale_after IS 'End of the lease.';
COMMENT ON COLUMN {schema}.execution_status.started_at IS 'When the last attempt was claimed; NULL: it was never claimed, or was released.';
COMMENT ON COLUMN {schema}.execution_status.finished_at IS 'When the last attempt ended; without started_at: when it was cancelled.';
COMMENT ON COLUMN {schema}.execution_status.duration_ms IS 'How long the handler ran, by its runner''s monotonic clock.';
COMMENT ON COLUMN {schema}.execution_status.rows_affected IS 'Number of affected rows that the handler reported.';
COMMENT ON COLUMN {schema}.execution_status.watermark IS 'Input that this execution covers: what was enqueued until its claim, unless its worker reports another watermark; NULL: none.';
COMMENT ON COLUMN {schema}.execution_status.result IS 'Return value of the handler.';
COMMENT ON COLUMN {schema}.execution_status.result_taken_at IS 'When a consumer took the result.';
COMMENT ON COLUMN {schema}.execution_status.output IS 'End of the output that a command wrote.';
COMMENT ON COLUMN {schema}.execution_status.output_characters IS 'Length of output.';
COMMENT ON COLUMN {schema}.execution_status.gated_at IS 'When it began to wait for the jobs that its job requires; NULL: it is not gated.';
COMMENT ON COLUMN {schema}.execution_status.waits_until IS 'End of its wait for required jobs, and for a handler that is not ready; NULL: it does not wait, or this is not known yet.';
COMMENT ON COLUMN {schema}.execution_status.waits_for IS 'What it waits for of the jobs that its job requires; NULL: it does not wait for them.';
COMMENT ON COLUMN {schema}.execution_status.error_code IS 'Why it failed, in one word; with SUCCESS: why the result could not be stored, or that it was changed.';
COMMENT ON COLUMN {schema}.execution_status.error_msg IS 'The error as text, at most 4,000 characters.';
COMMENT ON COLUMN {schema}.execution_status.cancel_requested_at IS 'When the cancellation of this execution was requested.';
COMMENT ON COLUMN {schema}.execution_status.cancel_requested_by IS 'The person who requested the cancellation.';
COMMENT ON COLUMN {schema}.execution_status.requested_by IS 'The person or program that requested this execution; NULL for the schedule. The view audit has its retries.';
COMMENT ON COLUMN {schema}.execution_status.created_at IS 'When the row was created.';
COMMENT ON COLUMN {schema}.execution_status.updated_at IS 'Last write other than a heartbeat.';
COMMENT ON COLUMN {schema}.execution_status.attempts IS 'Earlier attempts, with their holders and their ends: attempt, runner_id, started_at, last_seen, ended_at, error_code, error_msg, and trace_id if it was traced.';
COMMENT ON COLUMN {schema}.execution_status.first_started_at IS 'When the first attempt was claimed.';
COMMENT ON COLUMN {schema}.execution_status.owner IS 'Current owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.execution_status.labels IS 'Current labels of the job; NULL or empty: it has none.';
COMMENT ON COLUMN {schema}.execution_status.traceparent IS 'Span that enqueued or triggered it, in the format of the W3C header traceparent; NULL: none was given. The trace of each attempt links to it.';
COMMENT ON COLUMN {schema}.execution_status.trace_id IS 'Trace of the attempt that ended last; NULL: it was not traced, or a later attempt is RUNNING. Not the trace in traceparent.';
COMMENT ON COLUMN {schema}.execution_status.redacted_at IS 'When its payload, result, output, key and messages were removed, by redact() or by keep_output of the job; NULL: they were not.';
COMMENT ON COLUMN {schema}.execution_status.window_start IS 'Start of the window of the last attempt, which ends before plan_time; NULL: it had none, or was never claimed.';
COMMENT ON COLUMN {schema}.execution_status.progress_done IS 'Units of work that the last attempt has reported as done; NULL: it reported none, or it succeeded.';
COMMENT ON COLUMN {schema}.execution_status.progress_total IS 'Units of work in all, as it reported; NULL: not known.';
COMMENT ON COLUMN {schema}.execution_status.progress_text IS 'Text of the last report: what the handler is doing; NULL: none was given.';
COMMENT ON COLUMN {schema}.execution_status.progress_at IS 'When it last reported.';

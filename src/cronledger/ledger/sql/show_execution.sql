-- Returns one execution by its id, without its payload, its output and the secrets of its holders. Probes
-- every partition.
-- No lock. Zero rows: it does not exist, or its partition was dropped.
SELECT e.id, e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.status, e.trigger, e.revision,
       e.queue, e.due_at, e.group_id, e.attempt, e.max_attempts, e.next_attempt_at,
       e.runner_id, e.heartbeat_at, e.stale_after, e.started_at, e.finished_at, e.duration_ms, e.watermark,
       e.rows_affected, e.result, e.result_taken_at, e.output_characters,
       e.error_code, e.error_msg, e.attempts, e.cancel_requested_at, e.cancel_requested_by,
       e.requested_by, e.created_at, e.updated_at, e.owner, e.labels, e.traceparent, e.trace_id, e.redacted_at,
       e.window_start, e.waits_until, e.waits_for, e.progress_done, e.progress_total, e.progress_text, e.progress_at
FROM {schema}.execution_status e WHERE e.id = %(id)s

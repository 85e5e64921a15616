-- Returns one execution by its id, without what only operators see. Probes every partition. No lock. Zero rows: it
-- does not exist, or its partition was dropped.
SELECT e.id, e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.status, e.trigger, e.revision, e.queue, e.due_at,
       e.group_id, e.enqueue_key, e.attempt, e.max_attempts, e.next_attempt_at, e.waits_for, e.waits_until, e.runner_id, e.stale_after,
       e.started_at, e.finished_at, e.duration_ms, e.rows_affected, e.watermark, e.result_taken_at,
       e.output_characters, e.error_code, e.error_msg, e.cancel_requested_at, e.cancel_requested_by, e.requested_by,
       e.created_at, e.progress_done, e.progress_total, e.progress_text, e.progress_at, e.trace_id, e.window_start, j.timezone, j.allow_stale_reentry, j.description
FROM {schema}.execution_status e
LEFT JOIN {schema}.job_details j ON j.name = e.job_name
WHERE e.id = %(id)s

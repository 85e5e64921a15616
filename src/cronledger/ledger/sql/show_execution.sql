-- One execution whole, save its output and the secrets of its holders, by the id that people type: every partition is probed.
-- No lock. Zero rows: there is none, or its partition was dropped behind retention.
SELECT e.id, e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.status, e.trigger, e.revision,
       e.queue, e.due_at, e.payload, e.group_id, e.attempt, e.max_attempts, e.next_attempt_at,
       e.runner_id, e.heartbeat_at, e.stale_after, e.started_at, e.finished_at, e.duration_ms, e.watermark,
       e.rows_affected, e.result, e.result_taken_at, length(e.output) AS output_characters,
       e.error_code, e.error_msg,
       coalesce((SELECT jsonb_agg(a.entry - 'lease_token' ORDER BY a.number)
                 FROM jsonb_array_elements(e.attempts) WITH ORDINALITY a(entry, number)), '[]') AS attempts,
       e.cancel_requested_at, e.cancel_requested_by,
       e.requested_by, e.created_at, e.updated_at
FROM {schema}.executions e WHERE e.id = %(id)s

-- Lists executions of one scope with plan_time in [since, until), in their order, without payloads,
-- results and outputs. No lock. Zero rows: there are none.
SELECT e.id, e.plan_time, e.status, e.trigger, e.revision, e.due_at, e.attempt, e.max_attempts,
       e.next_attempt_at, e.runner_id, e.heartbeat_at, e.stale_after, e.started_at, e.finished_at,
       e.duration_ms, e.error_code, e.error_msg, e.attempts, e.cancel_requested_at,
       e.cancel_requested_by, e.requested_by, e.redacted_at, e.window_start, e.waits_until, e.waits_for
FROM {schema}.execution_status e
WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s, %(kind)s, %(scope)s)
  AND e.plan_time >= %(since)s AND e.plan_time < %(until)s
ORDER BY e.plan_time

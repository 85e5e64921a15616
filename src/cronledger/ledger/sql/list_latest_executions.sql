-- Lists the first executions of one scope that are RUNNING, wait, or await a retry, in the order of their
-- plan_times; if there are none, the one with the last plan_time. Without payloads, results and outputs. No
-- lock. Zero rows: the scope has no execution.
WITH unfinished AS MATERIALIZED (
    SELECT e.plan_time FROM {schema}.execution_status e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s, %(kind)s, %(scope)s)
      AND (e.status IN ('PENDING', 'RUNNING') OR e.next_attempt_at IS NOT NULL)
    ORDER BY e.plan_time LIMIT %(max_rows)s
), latest AS MATERIALIZED (
    SELECT e.plan_time FROM {schema}.execution_status e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s, %(kind)s, %(scope)s)
      AND NOT EXISTS (SELECT FROM unfinished)
    ORDER BY e.plan_time DESC LIMIT 1
)
SELECT e.id, e.plan_time, e.status, e.trigger, e.revision, e.due_at, e.attempt, e.max_attempts,
       e.next_attempt_at, e.runner_id, e.heartbeat_at, e.stale_after, e.started_at, e.finished_at,
       e.duration_ms, e.error_code, e.error_msg, e.attempts, e.cancel_requested_at,
       e.cancel_requested_by, e.requested_by, e.redacted_at, e.window_start, e.waits_until, e.waits_for
FROM {schema}.execution_status e
WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s, %(kind)s, %(scope)s)
  AND e.plan_time = ANY (ARRAY(SELECT u.plan_time FROM unfinished u UNION ALL SELECT l.plan_time FROM latest l))
ORDER BY e.plan_time

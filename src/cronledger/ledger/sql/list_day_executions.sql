-- Lists executions of one scope with plan_time in [start, end) and one of these triggers, in their order, as
-- far as a picture of the day shows them. No lock. Zero rows: there are none.
SELECT e.id, e.plan_time, e.trigger, e.status, e.next_attempt_at, e.revision, e.due_at, e.attempt,
       e.max_attempts, e.runner_id, e.first_started_at, e.started_at, e.finished_at, e.duration_ms,
       e.error_code, e.requested_by
FROM {schema}.execution_status e
WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s, %(kind)s, %(scope)s)
  AND e.plan_time >= %(start)s AND e.plan_time < %(end)s AND e.trigger = ANY (%(triggers)s::text[])
ORDER BY e.plan_time
LIMIT %(max_rows)s

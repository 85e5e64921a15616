-- Lists the executions of a required (job, scope) with plan_time in (after, through] that can open or close a gate, by
-- plan_time. No lock.
SELECT e.plan_time, e.status, e.finished_at
FROM {schema}.verify_executions e
WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s, %(kind)s, %(scope)s)
  AND e.plan_time > %(after)s AND e.plan_time <= %(through)s AND e.trigger IN ('schedule', 'backfill')
  AND e.plan_time = date_trunc('second', e.plan_time)
ORDER BY e.plan_time

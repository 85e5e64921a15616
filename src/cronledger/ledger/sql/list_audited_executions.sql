-- Lists executions of schedules, of (job, scope) in a range of keys, by key and plan_time, with the
-- columns that verify compares. No lock. Reads the primary key, so nothing is sorted.
SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id, e.revision, e.due_at
FROM {schema}.verify_executions e
WHERE (e.job_name, e.scope_kind, e.scope_id) > (%(job)s, %(kind)s, %(scope)s)
  AND (e.job_name, e.scope_kind, e.scope_id) <= (%(last_job)s, %(last_kind)s, %(last_scope)s)
  AND e.plan_time > %(after)s AND e.plan_time <= %(through)s AND e.trigger = 'schedule'
ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time

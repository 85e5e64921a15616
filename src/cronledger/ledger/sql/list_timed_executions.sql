-- Lists executions of the schedule and manual ones, of (job, scope) in a range of keys, by key and plan_time, with
-- the instants that decide about deadlines. No lock. Zero rows: there are none.
SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id, e.trigger, e.revision, e.status, e.created_at,
       e.first_started_at, e.finished_at, e.attempt, e.duration_ms
FROM {schema}.execution_status e
WHERE (e.job_name, e.scope_kind, e.scope_id) > (%(job)s, %(kind)s, %(scope)s)
  AND (e.job_name, e.scope_kind, e.scope_id) <= (%(last_job)s, %(last_kind)s, %(last_scope)s)
  AND e.plan_time > %(after)s AND e.plan_time <= %(through)s AND e.trigger <> 'enqueue'
ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time

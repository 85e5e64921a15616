-- Counts by status the executions of one scope with plan_time in [first, before) that were written since
-- an instant. Manual ones are not counted. No lock. Zero rows: none was written.
SELECT e.status, count(*) AS count FROM {schema}.execution_status e
WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s, %(kind)s, %(scope)s)
  AND e.plan_time >= %(first)s AND e.plan_time < %(before)s
  AND e.updated_at >= %(since)s AND e.trigger <> 'manual'
GROUP BY 1 ORDER BY 1

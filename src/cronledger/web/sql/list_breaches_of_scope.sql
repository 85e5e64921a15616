-- Lists the breaches of one scope, or of one plan_time of it, the newest plan_time first. No lock. Zero rows: there is
-- none.
SELECT b.plan_time, b.execution_id, b.kind, b.deadline, b.breached_at, b.closed_at
FROM {schema}.breaches b
WHERE (b.job_name, b.scope_kind, b.scope_id) = (%(job)s, %(scope_kind)s, %(scope_id)s)
  AND (%(at)s::timestamptz IS NULL OR b.plan_time = %(at)s::timestamptz)
ORDER BY b.plan_time DESC, b.deadline, b.kind
LIMIT %(max_rows)s

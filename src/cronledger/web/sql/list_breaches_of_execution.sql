-- Lists the breaches of the plan_time of one execution. No lock. Zero rows: there is none.
SELECT b.kind, b.deadline, b.breached_at, b.closed_at
FROM {schema}.breaches b
WHERE (b.job_name, b.scope_kind, b.scope_id, b.plan_time)
      = (%(job)s, %(scope_kind)s, %(scope_id)s, %(at)s::timestamptz)
ORDER BY b.deadline, b.kind
LIMIT %(max_rows)s

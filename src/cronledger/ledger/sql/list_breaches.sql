-- Lists missed deadlines, the newest plan_times first. A NULL parameter does not restrict. No lock. Zero rows: none
-- matches.
SELECT b.id, b.job_name, b.scope_kind, b.scope_id, b.plan_time, b.execution_id, b.kind, b.deadline, b.breached_at,
       b.closed_at, b.owner, b.labels
FROM {schema}.breaches b
WHERE (NOT %(only_open)s::boolean OR b.closed_at IS NULL)
  AND (%(job)s::text IS NULL OR b.job_name = %(job)s::text)
  AND (%(owner)s::text IS NULL AND %(labels)s::jsonb IS NULL OR b.job_name = ANY (ARRAY(
       SELECT j.name FROM {schema}.job_details j
       WHERE (%(owner)s::text IS NULL OR j.owner = %(owner)s::text)
         AND (%(labels)s::jsonb IS NULL OR j.labels @> %(labels)s::jsonb))))
ORDER BY b.plan_time DESC, b.job_name, b.scope_kind, b.scope_id, b.kind
LIMIT %(max_rows)s

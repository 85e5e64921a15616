-- Lists the deadlines that were missed within the last day and not met since, the oldest first, with the zone of each job.
-- They are searched for among the newest max_read breaches. A NULL parameter does not restrict. No lock. Zero rows: none.
SELECT b.job_name, b.scope_kind, b.scope_id, b.plan_time, b.execution_id, b.kind, b.deadline, b.breached_at, j.timezone
FROM (SELECT n.* FROM {schema}.breaches n ORDER BY n.id DESC LIMIT %(max_read)s) b
LEFT JOIN {schema}.job_details j ON j.name = b.job_name
WHERE b.closed_at IS NULL AND b.breached_at > {schema}.db_now() - interval '1 day'
  AND (%(owner)s::text IS NULL OR b.owner = %(owner)s::text)
  AND (%(label)s::text IS NULL OR {schema}_internal.has_label(b.labels, %(label)s::text))
ORDER BY b.deadline, b.job_name, b.scope_kind, b.scope_id, b.plan_time, b.kind
LIMIT %(max_rows)s

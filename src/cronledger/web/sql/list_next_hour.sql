-- Lists the next plan_time of each (job, scope) that is due within an hour, the soonest first. It reads the due
-- index queue by queue, so that each queue adds at most max_read rows to those that are searched. A NULL owner or label
-- does not restrict. No lock. Zero rows: nothing is due.
SELECT u.job_name, u.scope_kind, u.scope_id, u.plan_time, u.due_at, u.due_in, u.timezone, u.schedule, u.queue
FROM {schema}.queue_status q
CROSS JOIN LATERAL (
    SELECT n.* FROM {schema}.upcoming n
    WHERE n.queue = q.name AND n.due_at >= {schema}.db_now() AND n.due_at < {schema}.db_now() + interval '1 hour'
    ORDER BY n.due_at, n.job_name, n.scope_kind, n.scope_id
    LIMIT %(max_read)s) u
WHERE (%(owner)s::text IS NULL OR u.owner = %(owner)s::text)
  AND (%(label)s::text IS NULL OR {schema}_internal.has_label(u.labels, %(label)s::text))
ORDER BY u.due_at, u.job_name, u.scope_id
LIMIT %(max_rows)s

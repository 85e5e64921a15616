-- Lists what is overdue, the longest first, with the zone of each job. A NULL parameter does not restrict. No lock.
-- Zero rows: nothing is overdue.
SELECT o.job_name, o.scope_kind, o.scope_id, o.plan_time, o.due_at, o.overdue_for, o.reason, o.detail,
       o.blocked_by, o.id, j.timezone
FROM {schema}.overdue o
LEFT JOIN {schema}.job_details j ON j.name = o.job_name
WHERE (%(owner)s::text IS NULL OR o.owner = %(owner)s::text)
  AND (%(label)s::text IS NULL OR {schema}_internal.has_label(o.labels, %(label)s::text))
ORDER BY o.due_at, o.job_name, o.scope_id
LIMIT %(max_rows)s

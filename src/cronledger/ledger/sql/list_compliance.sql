-- Lists the judged deadlines of each (job, scope) and month, the newest months first. A NULL parameter does not
-- restrict. No lock. Zero rows: none matches.
SELECT to_char(c.month, 'YYYY-MM') AS month, c.job_name, c.scope_kind, c.scope_id, c.deadlines, c.met, c.met_late, c.missed, c.owner, c.labels
FROM {schema}.compliance c
WHERE (%(month)s::date IS NULL OR c.month = %(month)s::date)
  AND (%(job)s::text IS NULL OR c.job_name = %(job)s::text)
  AND (%(scope_id)s::text IS NULL OR (c.scope_kind, c.scope_id) = (%(scope_kind)s::text, %(scope_id)s::text))
  AND (%(owner)s::text IS NULL OR c.owner = %(owner)s::text)
  AND (%(labels)s::jsonb IS NULL OR c.labels @> %(labels)s::jsonb)
ORDER BY c.month DESC, c.job_name, c.scope_kind, c.scope_id
LIMIT %(max_rows)s

-- Lists the deadlines of one scope by month, the newest first, and how many were met. No lock. Zero rows: it had none.
SELECT c.month, c.deadlines, c.met, c.met_late, c.missed
FROM {schema}.compliance c
WHERE (c.job_name, c.scope_kind, c.scope_id) = (%(job)s, %(scope_kind)s, %(scope_id)s)
ORDER BY c.month DESC
LIMIT %(max_rows)s

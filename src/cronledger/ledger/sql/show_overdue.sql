-- Returns why one scope of a job is overdue, from the view. No lock. Zero rows: it is not.
SELECT o.reason, o.detail, o.due_at FROM {schema}.overdue o
WHERE (o.job_name, o.scope_kind, o.scope_id) = (%(job)s, %(kind)s, %(scope)s)
ORDER BY o.due_at LIMIT 1

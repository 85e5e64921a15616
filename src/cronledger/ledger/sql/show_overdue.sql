-- Returns why one scope of a job, or one execution of it, is overdue, from the view. execution_id NULL: of the scope,
-- what has been due for longest. No lock. Zero rows: it is not.
SELECT o.reason, o.detail, o.due_at FROM {schema}.overdue o
WHERE (o.job_name, o.scope_kind, o.scope_id) = (%(job)s, %(kind)s, %(scope)s)
  AND (%(execution_id)s::bigint IS NULL OR o.id = %(execution_id)s::bigint)
ORDER BY o.due_at LIMIT 1

-- Returns the problem of the scope provider of a job, from the view overdue. No lock. Zero rows: there is
-- none.
SELECT o.reason, o.detail, o.due_at FROM {schema}.overdue o
WHERE o.job_name = %(job)s AND o.reason IN ('provider_failed', 'no_provider')

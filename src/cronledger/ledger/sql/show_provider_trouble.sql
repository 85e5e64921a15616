-- What is wrong with the scope provider of a job, as the view says. No lock. Zero rows: nothing.
SELECT o.reason, o.detail, o.due_at FROM {schema}.overdue o
WHERE o.job_name = %(job)s AND o.reason IN ('provider_failed', 'no_provider')

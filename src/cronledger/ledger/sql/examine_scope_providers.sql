-- Lists jobs whose scope provider fails, or that no runner asks for scopes, as the view overdue has them.
-- No lock. Zero rows: there are none.
SELECT o.job_name, o.reason, o.detail FROM {schema}.overdue o
WHERE o.reason IN ('provider_failed', 'no_provider')
ORDER BY o.job_name

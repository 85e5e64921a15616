-- Jobs whose scope provider fails, or is not asked by any runner, as the view says. No lock; zero rows:
-- there are none.
SELECT o.job_name, o.reason, o.detail FROM {schema}.overdue o
WHERE o.reason IN ('provider_failed', 'no_provider')
ORDER BY o.job_name

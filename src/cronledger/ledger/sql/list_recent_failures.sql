-- Lists the executions that FAILED within a week, the last ended first. No lock. Zero rows: there are none.
SELECT f.id, f.job_name, f.scope_id, f.plan_time, f.error_code
FROM {schema}.recent_failures f
WHERE starts_with(f.id::text, %(prefix)s::text)
ORDER BY f.finished_at DESC
LIMIT %(max_rows)s

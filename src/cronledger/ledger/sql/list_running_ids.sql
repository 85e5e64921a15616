-- Lists the executions that are RUNNING, the last started first. No lock. Zero rows: there are none.
SELECT r.id, r.job_name, r.scope_id, r.plan_time
FROM {schema}.running r
WHERE starts_with(r.id::text, %(prefix)s::text)
ORDER BY r.started_at DESC
LIMIT %(max_rows)s

-- Lists the scopes of jobs with a schedule, by job and scope, with their cursors, without those that are retired.
-- No lock. Zero rows: nothing is planned.
SELECT v.job_name, v.scope_kind, v.scope_id, v.planned_through
FROM {schema}.verify_schedules v
JOIN {schema}.job_details j ON j.name = v.job_name
WHERE j.schedule IS NOT NULL AND j.retired_at IS NULL AND (v.retired_at IS NULL OR v.returned_at IS NOT NULL)
ORDER BY v.job_name, v.scope_kind, v.scope_id
LIMIT %(max_rows)s

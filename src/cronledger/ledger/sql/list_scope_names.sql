-- Lists the scope_ids of a job that begin with a prefix, without retired ones. No lock. Zero rows: none does.
SELECT s.scope_id AS name
FROM {schema}.verify_schedules s
WHERE s.job_name = %(job)s::text AND starts_with(s.scope_id, %(prefix)s::text)
  AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
ORDER BY s.scope_kind, s.scope_id
LIMIT %(max_rows)s

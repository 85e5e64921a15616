-- Lists the jobs that a pause would select, with their definitions, and of their planned scopes the number and the first.
-- A NULL parameter does not restrict. No lock. Zero rows: none matches.
SELECT d.*, s.scope_count, s.first_scope
FROM {schema}.job_details d
CROSS JOIN LATERAL (
    SELECT count(*) AS scope_count, min(v.scope_id) AS first_scope FROM {schema}.verify_schedules v
    WHERE v.job_name = d.name AND (v.retired_at IS NULL OR v.returned_at IS NOT NULL)) s
WHERE d.retired_at IS NULL
  AND (%(job)s::text IS NULL OR d.name = %(job)s::text)
  AND (%(queue)s::text IS NULL OR d.queue = %(queue)s::text)
  AND (%(owner)s::text IS NULL OR d.owner = %(owner)s::text)
  AND (%(labels)s::jsonb IS NULL OR d.labels @> %(labels)s::jsonb)
ORDER BY d.name

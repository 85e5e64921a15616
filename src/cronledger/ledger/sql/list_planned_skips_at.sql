-- Lists the planned skips of one scope that contain an instant of [since, until), by their first plan_time, at most
-- max_rows (NULL: all). No lock. Zero rows: there are none.
SELECT p.id, p.scope_id, p.from_plan_time, p.covered_through, p.reason, p.requested_by, p.created_at
FROM {schema}.planned_skip_status p
WHERE p.job_name = %(job)s AND p.covered_through >= p.from_plan_time
  AND p.covered_through >= %(since)s AND p.from_plan_time < %(until)s
  AND (p.scope_id IS NULL OR (p.scope_kind, p.scope_id) = (%(kind)s, %(scope)s))
ORDER BY p.from_plan_time, p.id
LIMIT %(max_rows)s::integer

-- Lists the schedules after a key, by key, for verify: their cursor, and the start of their history. No
-- lock. Zero rows: there are no more.
SELECT s.job_name, s.scope_kind, s.scope_id, s.planned_through, s.planned_revision, s.parked,
       s.created_at, s.retirements, s.returns, s.absent_from, s.absent_until,
       s.boots, s.noticed_after
FROM {schema}.verify_schedules s
WHERE (s.job_name, s.scope_kind, s.scope_id) > (%(job)s, %(kind)s, %(scope)s)
  AND (%(only)s::text IS NULL OR s.job_name = %(only)s)
ORDER BY s.job_name, s.scope_kind, s.scope_id LIMIT %(max_rows)s

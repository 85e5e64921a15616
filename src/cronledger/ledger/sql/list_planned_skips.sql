-- Lists planned skips of a job, or of all, by their first plan_time: at most max_rows. Without with_former, only those
-- whose last plan_time is to come. NULL does not restrict. No lock. Zero rows: there are none.
SELECT p.id, p.job_name, p.scope_kind, p.scope_id, p.from_plan_time, p.through_plan_time, p.covered_through, p.reason,
       p.state, p.skipped, p.requested_by, p.created_at, p.withdrawn_at, p.withdrawn_by
FROM {schema}.planned_skip_status p
WHERE (%(job)s::text IS NULL OR p.job_name = %(job)s::text)
  AND (%(with_former)s::boolean OR p.state IN ('planned', 'begun'))
ORDER BY p.from_plan_time, p.id
LIMIT %(max_rows)s

-- Lists the planned skips of these jobs that contain any instant, for verify. No lock. Zero rows: there are none.
SELECT p.job_name, p.scope_kind, p.scope_id, p.from_plan_time, p.covered_through, p.reason, p.created_at
FROM {schema}.planned_skip_status p
WHERE p.job_name = ANY (%(jobs)s::text[]) AND p.covered_through >= p.from_plan_time

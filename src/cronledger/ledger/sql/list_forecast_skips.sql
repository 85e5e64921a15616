-- Lists the planned skips that reach beyond now, by their first plan_time. No lock. Zero rows: there are none.
SELECT p.job_name, p.scope_id, p.from_plan_time, p.covered_through, p.reason
FROM {schema}.planned_skip_status p
WHERE p.covered_through >= p.from_plan_time AND p.covered_through >= {schema}.db_now()
ORDER BY p.from_plan_time, p.id
LIMIT %(max_rows)s

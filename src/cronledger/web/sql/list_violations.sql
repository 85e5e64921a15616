-- Lists the violations of the current state, one row for each kind of a job: the newest one, and their number. A NULL
-- parameter does not restrict. No lock. Zero rows: there are none.
SELECT v.kind, v.job_name, v.scope_kind, v.scope_id, v.plan_time, v.execution_id, v.detail, v.violations, j.timezone,
       j.owner
FROM (
    SELECT x.*, count(*) OVER (PARTITION BY x.job_name, x.kind) AS violations,
           row_number() OVER (PARTITION BY x.job_name, x.kind ORDER BY x.plan_time DESC NULLS LAST) AS place
    FROM {schema}.present_violations x
) v
LEFT JOIN {schema}.job_details j ON j.name = v.job_name
WHERE v.place = 1
  AND (%(owner)s::text IS NULL OR j.owner = %(owner)s::text)
  AND (%(label)s::text IS NULL OR {schema}_internal.has_label(j.labels, %(label)s::text))
ORDER BY v.plan_time DESC NULLS LAST, v.kind
LIMIT %(max_rows)s

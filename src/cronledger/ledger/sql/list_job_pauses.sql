-- Lists the pauses of a job that are planned or in force, the first one first, at most max_rows. No lock. Zero rows:
-- there are none.
SELECT p.id, p.is_planned, p.from_at, p.until_at, p.reason, p.requested_by
FROM {schema}.job_pauses p WHERE p.job_name = %(job)s
ORDER BY p.from_at, p.id
LIMIT %(max_rows)s

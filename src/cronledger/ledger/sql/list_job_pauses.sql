-- Lists the pauses of a job that are planned or in force, at most max_rows. The one that ends last comes first, because
-- it is named for what several of them skip (pause_in_force). No lock. Zero rows: there are none.
SELECT p.id, p.is_planned, p.from_at, p.until_at, p.reason, p.requested_by
FROM {schema}.job_pauses p WHERE p.job_name = %(job)s
ORDER BY p.until_at DESC NULLS FIRST, p.id
LIMIT %(max_rows)s

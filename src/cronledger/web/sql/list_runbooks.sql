-- Lists the runbooks of these jobs. No lock. Zero rows: none of them has one.
SELECT j.name, j.runbook FROM {schema}.job_details j
WHERE j.name = ANY (%(names)s::text[]) AND j.runbook IS NOT NULL
ORDER BY j.name
LIMIT %(max_rows)s

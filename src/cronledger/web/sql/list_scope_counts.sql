-- Counts the scopes that are not retired of these jobs, of those that have more than one. No lock. Zero rows for a job: it
-- has one scope or none.
SELECT v.job_name, count(*) AS scopes
FROM {schema}.verify_schedules v
WHERE v.job_name = ANY (%(names)s::text[]) AND (v.retired_at IS NULL OR v.returned_at IS NOT NULL)
GROUP BY v.job_name
HAVING count(*) > 1
LIMIT %(max_rows)s

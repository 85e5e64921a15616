-- Lists the names of jobs that begin with a prefix, by name. No lock. Zero rows: none does.
SELECT j.name
FROM {schema}.job_details j
WHERE starts_with(j.name, %(prefix)s::text) AND j.retired_at IS NULL
ORDER BY j.name COLLATE "C"
LIMIT %(max_rows)s

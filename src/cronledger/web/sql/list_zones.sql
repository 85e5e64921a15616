-- Lists the time zones of the jobs with these names. No lock. Zero rows: none of them exists.
SELECT j.name, j.timezone
FROM {schema}.job_details j
WHERE j.name = ANY (%(names)s::text[])
LIMIT %(max_rows)s

-- Lists the jobs that use one of these calendars, except those of a list and retired ones, as rows that
-- `compare_source` returns for jobs that it finds unchanged. No lock. Zero rows: there are none.
SELECT j.*, true AS declared, true AS stored, '{}'::text[] AS differs
FROM {schema}.job_details j
WHERE j.calendar IN (SELECT unnest(%(calendars)s::text[])) AND j.retired_at IS NULL
  AND j.name NOT IN (SELECT unnest(%(jobs)s::text[]))
ORDER BY j.name

-- Lists the jobs that never fire, because their definition cannot be planned, by name. A NULL owner or label does not
-- restrict. No lock. Zero rows: none is broken.
SELECT j.name AS job_name, j.spec_error, j.owner, j.timezone
FROM {schema}.job_details j
WHERE j.retired_at IS NULL AND j.spec_error IS NOT NULL
  AND (%(owner)s::text IS NULL OR j.owner = %(owner)s::text)
  AND (%(label)s::text IS NULL OR {schema}_internal.has_label(j.labels, %(label)s::text))
ORDER BY j.name
LIMIT %(max_rows)s

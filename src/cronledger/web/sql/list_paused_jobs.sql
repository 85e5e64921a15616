-- Lists the jobs that are paused, the longest first. A NULL parameter does not restrict. No lock. Zero rows: none is.
SELECT j.name AS job_name, j.paused_at, j.paused_by, j.paused_reason, nullif(j.paused_until, 'infinity') AS paused_until,
       j.owner, j.timezone
FROM {schema}.job_details j
WHERE j.retired_at IS NULL AND j.paused_at IS NOT NULL AND coalesce(j.paused_until > {schema}.db_now(), true)
  AND (%(owner)s::text IS NULL OR j.owner = %(owner)s::text)
  AND (%(label)s::text IS NULL OR {schema}_internal.has_label(j.labels, %(label)s::text))
ORDER BY j.paused_at, j.name
LIMIT %(max_rows)s

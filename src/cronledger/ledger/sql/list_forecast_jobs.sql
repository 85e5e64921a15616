-- Lists the jobs that are not retired, by name, as they are defined, without target and payload. No lock. Zero rows:
-- there are none.
SELECT j.* FROM {schema}.job_details j WHERE j.retired_at IS NULL ORDER BY j.name LIMIT %(max_rows)s

-- Lists the queues, the sources and the owners of jobs that are not retired, for the filters. No lock. Zero rows: no jobs.
SELECT DISTINCT j.queue, j.source, j.owner FROM {schema}.job_details j WHERE j.retired_at IS NULL
ORDER BY 1, 2, 3
LIMIT %(max_rows)s

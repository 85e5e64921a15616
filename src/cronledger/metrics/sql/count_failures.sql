-- Counts by job the executions that became FAILED within the last hour and are not retried, max_read at most. No lock. Zero
-- rows: there are none.
SELECT n.job_name, count(*) AS count
FROM (SELECT f.job_name FROM {schema}.recent_failures f
      WHERE f.finished_at > {schema}.db_now() - interval '1 hour' AND NOT f.will_retry LIMIT %(max_read)s) n
GROUP BY n.job_name

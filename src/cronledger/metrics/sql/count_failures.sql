-- Counts the executions that became FAILED within the last hour and are not retried, max_read at most. No lock. Always
-- one row.
SELECT count(*) AS count
FROM (SELECT FROM {schema}.recent_failures f
      WHERE f.finished_at > {schema}.db_now() - interval '1 hour' AND NOT f.will_retry LIMIT %(max_read)s) n

-- Counts the scopes that are not retired, up to `most_scopes`. One row. No lock.
SELECT count(*) AS count
FROM (SELECT FROM {schema}.verify_schedules v
      WHERE v.retired_at IS NULL OR v.returned_at IS NOT NULL
      LIMIT %(most_scopes)s) s

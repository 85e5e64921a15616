-- The view crashes read all executions of a week, and each scrape of the metrics reads it. Its condition is that of the
-- index, so that only attempts whose runner vanished are read. A heartbeat writes none of these columns, and no
-- statement of a replica repeats the condition.
-- The owner may build the index before with CREATE INDEX CONCURRENTLY (docs/operations.md).
CREATE INDEX executions_lost ON {schema}.executions (plan_time)
    WHERE attempts @> '[{"error_code": "runner_crashed"}]' OR attempts @> '[{"error_code": "stale_timeout"}]'
       OR error_code = 'stale_timeout';

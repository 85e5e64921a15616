-- Deletes alerts from before the oldest executions that are kept, the oldest first. One row: how many.
-- Lock: rows of raised_alerts.
SELECT {schema}_internal.prune_alerts(%(most)s) AS pruned

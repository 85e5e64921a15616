-- Deletes hours whose executions may have been pruned, the oldest first. One row: how many.
-- Lock: rows of rolled_up_hours.
SELECT {schema}_internal.prune_hours(%(most)s) AS pruned

-- Deletes breaches whose executions may have been pruned, and returns how many. Lock: their rows. Always one row.
SELECT {schema}_internal.prune_breaches(%(most)s)

-- Returns when the next gate is due to be checked. No lock. Always one row; NULL: none is.
SELECT min(g.check_at) FROM {schema}.gates g WHERE g.check_at IS NOT NULL

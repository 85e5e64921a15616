-- Pauses every queue in use. Locks: those of the function. Always one row: how many were not paused before.
SELECT {schema}.pause_all(reason => %(reason)s::text, requested_by => %(requested_by)s::text) AS value

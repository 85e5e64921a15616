-- Requests that an execution ends. Locks: those of the function. Always one row: cancelled, requested,
-- already_finished or busy.
SELECT {schema}.cancel(%(id)s::bigint, requested_by => %(requested_by)s::text) AS value

-- Requests that an execution ends. Locks: those of the function. Always one row: what became of the request.
SELECT {schema}.cancel(%(id)s::bigint) AS value

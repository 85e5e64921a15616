-- Gives an execution one more attempt. Locks: those of the function. Always one row: retried or brought_forward.
SELECT {schema}.retry(%(id)s::bigint, force => %(force)s::boolean, requested_by => %(requested_by)s::text) AS value

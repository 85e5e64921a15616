-- Gives an execution one more attempt, which is due now. Locks: those of the function. Always one row: what
-- became of the execution.
SELECT {schema}.retry(%(id)s::bigint, force => %(force)s::boolean) AS value

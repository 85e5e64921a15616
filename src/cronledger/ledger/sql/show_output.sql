-- Returns the end of the output of the last attempt of one execution. No lock. Zero rows: the execution
-- does not exist. NULL: nothing was stored.
SELECT e.id, e.status, e.output FROM {schema}.execution_status e WHERE e.id = %(id)s

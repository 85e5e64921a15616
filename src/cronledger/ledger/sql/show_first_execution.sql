-- The least id of all executions that are still there; NULL: there are none. No lock.
SELECT min(e.id) AS id FROM {schema}.verify_executions e

-- Returns the least id of all existing executions; NULL: there are none. No lock.
SELECT min(e.id) AS id FROM {schema}.verify_executions e

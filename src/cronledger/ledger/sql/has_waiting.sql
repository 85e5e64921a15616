-- Returns whether any execution is PENDING or awaits a retry, due or not. The end of another may be what it
-- waits for. And whether a gate is due to be checked. No lock. Always one row.
SELECT EXISTS (SELECT FROM {schema}.executions e WHERE e.next_attempt_at IS NOT NULL) AS executions,
       EXISTS (SELECT FROM {schema}.gates g WHERE g.check_at <= {schema}.db_now()) AS gates

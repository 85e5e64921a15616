-- Returns the output of one execution: of its attempt `attempt`, NULL: of the last one. While it runs, and after the
-- death of its runner, that is what it has written so far. No lock. Zero rows: the execution does not exist. NULL:
-- nothing was stored.
SELECT e.id, e.status, a.attempt, coalesce(
           CASE WHEN a.attempt = e.attempt THEN e.output END,
           (SELECT string_agg(c.text, '' ORDER BY c.number) FROM {schema}.running_output c
            WHERE c.execution_id = e.id AND c.attempt = a.attempt)) AS output
FROM {schema}.execution_status e CROSS JOIN LATERAL (SELECT coalesce(%(attempt)s::integer, e.attempt)) a(attempt)
WHERE e.id = %(id)s

-- Returns what an execution returned, and its output: while it runs, what it has written until now, with the number of
-- the last chunk. No lock. Zero rows: it does not exist.
SELECT e.result::text AS result, coalesce(e.output, c.text) AS output, e.status, e.attempt, coalesce(c.number, 0) AS number
FROM {schema}.execution_status e
LEFT JOIN LATERAL (
    SELECT max(o.number) AS number, string_agg(o.text, '' ORDER BY o.number) AS text
    FROM {schema}.running_output o
    WHERE o.execution_id = e.id AND o.attempt = e.attempt) c ON e.status = 'RUNNING'
WHERE e.id = %(id)s

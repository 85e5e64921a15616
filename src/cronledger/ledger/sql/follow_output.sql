-- Returns the state of one execution for those who follow its output: while it runs, the chunks of its attempt after
-- `number` (0 for another attempt than `attempt`), and after that the output of its row. No lock. Zero rows: the
-- execution does not exist.
SELECT e.id, e.job_name, e.status, e.attempt, e.max_attempts, e.runner_id, e.next_attempt_at, e.error_code, e.error_msg,
       CASE WHEN e.status <> 'RUNNING' THEN e.output END AS output, c.number, c.text
FROM {schema}.execution_status e
LEFT JOIN LATERAL (
    SELECT max(o.number) AS number, string_agg(o.text, '' ORDER BY o.number) AS text
    FROM {schema}.running_output o
    WHERE o.execution_id = e.id AND o.attempt = e.attempt
      AND o.number > CASE WHEN e.attempt = %(attempt)s THEN %(number)s ELSE 0 END) c ON e.status = 'RUNNING'
WHERE e.id = %(id)s

-- Lists the attempts of one execution in their order. No lock. Zero rows: it was never claimed.
SELECT a.attempt, a.how, a.runner_id, a.started_at, a.last_seen, a.ended_at, a.error_code, a.is_last
FROM {schema}.attempts a
WHERE a.id = %(id)s
ORDER BY a.started_at, a.attempt
LIMIT %(max_rows)s

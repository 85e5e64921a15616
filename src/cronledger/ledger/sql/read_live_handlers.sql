-- Python functions that some live runner of these queues has; NULL stands for a live runner as such
-- (it runs commands). Zero rows: no runner is alive.
SELECT DISTINCT f.name
FROM {schema}.runners r LEFT JOIN LATERAL unnest(r.handlers || ARRAY[NULL]::text[]) AS f(name) ON true
WHERE r.state = 'running' AND r.stale_after > {schema}.db_now()

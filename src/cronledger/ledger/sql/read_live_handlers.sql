-- Lists the Python functions of live runners, with the queues that these serve. No lock. Zero rows: no
-- runner is alive.
SELECT DISTINCT q.name, f.name
FROM {schema}.runners r CROSS JOIN LATERAL unnest(r.queues) AS q(name)
CROSS JOIN LATERAL unnest(r.handlers) AS f(name)
WHERE r.state = 'running' AND r.stale_after > {schema}.db_now()

-- Room left in the limited queues among these. Must be a statement of its own after their lock: the
-- statement that took the lock counts with an older snapshot.
SELECT q.name, q.max_running - (
    SELECT count(*) FROM {schema}.executions e WHERE e.queue = q.name AND e.status = 'RUNNING')
FROM {schema}.queues q
WHERE q.name = ANY (%(queues)s::text[]) AND q.max_running IS NOT NULL

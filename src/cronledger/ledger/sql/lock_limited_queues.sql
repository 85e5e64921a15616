-- Returns those of these queues that have no limit, and the limited ones whose row it could lock.
-- Lock: queues FOR NO KEY UPDATE, SKIP LOCKED, because the claim holds schedules already, and queues come
-- before them in the lock order. A queue that does not come back is not claimed in this step.
WITH held AS (
    SELECT q.name FROM {schema}.queues q
    WHERE q.name = ANY (%(queues)s::text[]) AND q.max_running IS NOT NULL
    ORDER BY q.name FOR NO KEY UPDATE SKIP LOCKED
)
SELECT u.name FROM unnest(%(queues)s::text[]) AS u(name)
WHERE u.name IN (SELECT h.name FROM held h)
   OR NOT EXISTS (SELECT FROM {schema}.queues q WHERE q.name = u.name AND q.max_running IS NOT NULL)

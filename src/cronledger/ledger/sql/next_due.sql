-- When this runner has to look again: the next schedule of its queues, and the next retry or PENDING
-- execution that was not due at `since`, before the claim looked for such (one that comes due between
-- that look and this one must be seen by one of them; those due and blocked are woken by what blocks
-- them).
-- No lock. NULL: nothing is to come.
WITH RECURSIVE d AS (
    (SELECT e.job_name FROM {schema}.executions e WHERE e.next_attempt_at IS NOT NULL
     ORDER BY e.job_name LIMIT 1)
    UNION ALL
    SELECT (SELECT e.job_name FROM {schema}.executions e
            WHERE e.next_attempt_at IS NOT NULL AND e.job_name > d.job_name
            ORDER BY e.job_name LIMIT 1)
    FROM d WHERE d.job_name IS NOT NULL
)
SELECT {schema}.db_clock() AS now,
       (SELECT min(n.next_due_at) FROM unnest(%(queues)s::text[]) AS q(name)
        CROSS JOIN LATERAL (
            SELECT s.next_due_at FROM {schema}.schedules s
            WHERE s.queue = q.name AND s.next_due_at IS NOT NULL
              AND s.job_name <> ALL (%(not_here)s::text[])
            ORDER BY s.next_due_at LIMIT 1) n
        WHERE NOT EXISTS (SELECT FROM {schema}.queues p
                          WHERE p.name = q.name AND p.paused_at IS NOT NULL)) AS due,
       (SELECT min(n.next_attempt_at) FROM d CROSS JOIN LATERAL (
            SELECT e.next_attempt_at FROM {schema}.executions e
            WHERE e.job_name = d.job_name AND e.next_attempt_at > %(since)s
            ORDER BY e.next_attempt_at LIMIT 1) n) AS again

-- Returns when this runner has to claim again: the next schedule of its queues (all woken ones count as
-- one), and the next retry or PENDING execution that was not due at `since`. `since` is before the claim
-- searched for due executions, so that what becomes due between the two searches is found by one of them.
-- Executions that are due and blocked are woken by what blocks them.
-- No lock. NULL: nothing is planned.
WITH RECURSIVE d AS (
    (SELECT e.job_name FROM {schema}.executions e WHERE e.next_attempt_at IS NOT NULL
     ORDER BY e.job_name LIMIT 1)
    UNION ALL
    SELECT (SELECT e.job_name FROM {schema}.executions e
            WHERE e.next_attempt_at IS NOT NULL AND e.job_name > d.job_name
            ORDER BY e.job_name LIMIT 1)
    FROM d WHERE d.job_name IS NOT NULL
), open AS MATERIALIZED (
    SELECT q.name FROM unnest(%(queues)s::text[]) AS q(name)
    WHERE NOT EXISTS (SELECT FROM {schema}.queues p WHERE p.name = q.name AND p.paused_at IS NOT NULL)
), w AS (
    SELECT o.name AS queue, (
        SELECT s.job_name FROM {schema}.schedules s WHERE s.woken AND s.queue = o.name
        ORDER BY s.job_name LIMIT 1) AS job
    FROM open o
    UNION ALL
    SELECT w.queue, (
        SELECT s.job_name FROM {schema}.schedules s
        WHERE s.woken AND s.queue = w.queue AND s.job_name > w.job ORDER BY s.job_name LIMIT 1)
    FROM w WHERE w.job IS NOT NULL
)
SELECT {schema}.db_clock() AS now,
       least((SELECT min(n.next_due_at) FROM open o
              CROSS JOIN LATERAL (
                  SELECT s.next_due_at FROM {schema}.schedules s
                  WHERE NOT s.woken AND s.queue = o.name AND s.next_due_at IS NOT NULL
                    AND s.job_name NOT IN (SELECT h.job FROM unnest(%(excluded_jobs)s::text[]) h(job))
                  ORDER BY s.next_due_at LIMIT 1) n),
             (SELECT n.next_due_at FROM w
              CROSS JOIN LATERAL (
                  SELECT s.next_due_at FROM {schema}.schedules s
                  WHERE s.woken AND s.queue = w.queue AND s.job_name = w.job LIMIT 1) n
              WHERE w.job NOT IN (SELECT h.job FROM unnest(%(excluded_jobs)s::text[]) h(job))
              LIMIT 1)) AS due,
       (SELECT min(n.next_attempt_at) FROM d CROSS JOIN LATERAL (
            SELECT e.next_attempt_at FROM {schema}.executions e
            WHERE e.job_name = d.job_name AND e.next_attempt_at > %(since)s
            ORDER BY e.next_attempt_at LIMIT 1) n) AS again

-- The queues in use by name: limit, pause, jobs, what waits and what runs, live runners. No lock.
-- Zero rows: no job, no runner and no row of queues.
SELECT n.name, q.max_running, q.paused_at, q.paused_by, q.paused_reason,
       (SELECT count(*) FROM {schema}.jobs j
        WHERE j.queue = n.name AND j.retired_at IS NULL) AS jobs,
       coalesce(w.waiting, 0) AS waiting, coalesce(b.running, 0) AS running,
       (SELECT count(*) FROM {schema}.runners r WHERE n.name = ANY (r.queues)
        AND r.state = 'running' AND r.stale_after > {schema}.db_now()) AS runners
FROM {schema}.queues_in_use() n(name)
LEFT JOIN {schema}.queues q ON q.name = n.name
LEFT JOIN (SELECT e.queue, count(*) AS waiting FROM {schema}.executions e
           WHERE e.next_attempt_at IS NOT NULL GROUP BY 1) w ON w.queue = n.name
LEFT JOIN (SELECT e.queue, count(*) AS running FROM {schema}.executions e
           WHERE e.status = 'RUNNING' GROUP BY 1) b ON b.queue = n.name
ORDER BY n.name COLLATE "C"

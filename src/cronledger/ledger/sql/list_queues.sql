-- Lists the queues in use by name: limit, pause, jobs, waiting and RUNNING executions, live runners. No lock.
-- Zero rows: no job, no runner and no row of queues.
SELECT q.name, q.max_running, q.paused_at, q.paused_by, q.paused_reason, q.jobs, q.waiting, q.running,
       q.runners
FROM {schema}.queue_status q
ORDER BY q.name COLLATE "C"
LIMIT %(max_rows)s

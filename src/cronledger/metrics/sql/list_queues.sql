-- Lists the queues in use: those with a limit, a pause or RUNNING executions first, then by name. `total`: the number
-- of all of them. No lock. Zero rows: no job, no runner and no limit names one.
SELECT q.name, q.max_running, q.paused_at IS NOT NULL AS paused, q.running, count(*) OVER () AS total
FROM {schema}.queue_status q
ORDER BY q.max_running IS NULL AND q.paused_at IS NULL AND q.running = 0, q.name COLLATE "C"
LIMIT %(max_rows)s

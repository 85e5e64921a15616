-- Lists the runners of the last day that have not stopped, by name. No lock. Zero rows: no replica runs.
SELECT r.runner_id, r.host, r.pid, r.version, r.state, r.queues, r.slots, r.running, r.started_at,
       r.heartbeat_at, r.heartbeat_age, r.failing
FROM {schema}.runner_status r
WHERE r.state <> 'stopped' AND r.stale_after > {schema}.db_now() - interval '1 day'
ORDER BY r.runner_id
LIMIT %(max_rows)s

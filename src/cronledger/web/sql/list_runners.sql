-- Lists runners of the last day, those that live first, by name. No lock. Zero rows: no replica ran lately.
SELECT r.runner_id, r.host, r.pid, r.version, r.deploy, r.state, r.queues, r.slots, r.running, r.started_at, r.heartbeat_at,
       r.heartbeat_age, r.clock_skew, r.failing
FROM {schema}.runner_status r
WHERE r.stale_after > {schema}.db_now() - interval '1 day'
ORDER BY r.state = 'stopped', r.runner_id
LIMIT %(max_rows)s

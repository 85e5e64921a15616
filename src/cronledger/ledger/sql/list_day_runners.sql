-- Lists when the runners of a queue lived, the first ones first: `alive_until` is their last check-in, or now
-- for a runner that is alive. Runners that were seen for the last time before `start` are left out, and a
-- runner that was not seen for the retention is removed. At most max_rows of them. No lock. Zero rows: none is known.
SELECT r.started_at,
       CASE WHEN r.state IN ('dead', 'stopped') THEN r.heartbeat_at ELSE {schema}.db_now() END AS alive_until
FROM {schema}.runner_status r
WHERE %(queue)s = ANY (r.queues) AND (r.state NOT IN ('dead', 'stopped') OR r.heartbeat_at >= %(start)s)
ORDER BY r.started_at
LIMIT %(max_rows)s

-- Lists runners, the last seen first. A runner that was not seen by its stale_after is `dead`, and its row
-- is removed a day later. A runner that is `refused` is in another database than the ledger's own, and
-- claims nothing. No lock. Zero rows: no replica ran lately.
SELECT r.runner_id AS id, CASE r.state WHEN 'alive' THEN 'running' ELSE r.state END AS state,
       r.host, r.pid, r.version, r.queues, r.slots, r.running, r.started_at, r.heartbeat_at,
       r.heartbeat_age AS seen_ago, r.stale_after, r.clock_skew, r.fingerprint, r.handlers
FROM {schema}.runner_status r
ORDER BY r.state = 'stopped', r.heartbeat_at DESC, r.runner_id

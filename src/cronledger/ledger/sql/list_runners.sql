-- Runners, those that were last seen first. One that was not seen by its stale_after is `dead`;
-- its row goes a day later. One that is
-- `refused` lives in another database than the ledger's own, and takes nothing. No lock. Zero rows: no replica ran lately.
SELECT r.runner_id AS id, CASE r.state WHEN 'alive' THEN 'running' ELSE r.state END AS state,
       r.host, r.pid, r.version, r.queues, r.slots, r.running, r.started_at, r.heartbeat_at,
       r.heartbeat_age AS seen_ago, r.stale_after, r.clock_skew, r.fingerprint, r.handlers
FROM {schema}.runner_status r
ORDER BY r.state = 'stopped', r.heartbeat_at DESC, r.runner_id

-- Lists runners by name, stopped ones last: those of the last day, or all that are kept. A runner that was not seen by
-- its stale_after is `dead`. A runner that is `refused` is in another database than the ledger's own, and claims
-- nothing. `failing`: the errors at its last check-in. No lock. Zero rows: no replica ran lately.
SELECT r.runner_id AS id, r.state, r.host, r.pid, r.version, r.deploy, r.queues, r.labels, r.slots, r.running, r.started_at,
       r.heartbeat_at, r.heartbeat_age AS seen_ago, r.stale_after, r.clock_skew, r.fingerprint, r.handlers, r.failing
FROM {schema}.runner_status r
WHERE %(with_former)s::boolean OR r.stale_after > {schema}.db_now() - interval '1 day'
ORDER BY r.state = 'stopped', r.runner_id
LIMIT %(max_rows)s

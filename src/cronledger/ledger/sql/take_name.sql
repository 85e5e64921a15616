-- Registers a runner under the name that it chose, unless a live runner has this name.
-- Lock: the runners row. Zero rows: the name is taken. Raises CL006 in another ledger than this one.
INSERT INTO {schema}.runners AS r
    (id, host, pid, version, state, queues, slots, started_at, heartbeat_at, stale_after)
SELECT %(runner)s, %(host)s, %(pid)s, %(version)s, 'running', %(queues)s::text[], %(slots)s,
       {schema}.db_now(), {schema}.db_clock(), {schema}.db_clock() + %(ttl)s::interval
FROM {schema}_internal.require_ledger(%(ledger)s::uuid)
ON CONFLICT (id) DO UPDATE
SET host = EXCLUDED.host, pid = EXCLUDED.pid, version = EXCLUDED.version, state = EXCLUDED.state,
    queues = EXCLUDED.queues, slots = EXCLUDED.slots, running = 0, started_at = EXCLUDED.started_at,
    heartbeat_at = {schema}.db_clock(), stale_after = {schema}.db_clock() + %(ttl)s::interval, handlers = '{}',
    diagnostics = '{}'
WHERE r.state = 'stopped' OR r.stale_after <= {schema}.db_now()
RETURNING r.id

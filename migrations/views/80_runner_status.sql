CREATE OR REPLACE VIEW {schema}.runner_status AS
SELECT r.id AS runner_id, r.host, r.pid, r.version,
       CASE WHEN r.state = 'stopped' THEN 'stopped'
            WHEN r.stale_after <= {schema}.db_now() THEN 'dead'
            WHEN r.state = 'draining' THEN 'draining'
            WHEN r.diagnostics ->> 'database' = 'other' THEN 'refused'
            ELSE 'alive' END AS state,
       r.queues, r.slots, r.running,
       CASE WHEN r.slots > 0 THEN round(r.running::numeric / r.slots, 3) END AS load,
       r.started_at, r.heartbeat_at, {schema}.db_now() - r.heartbeat_at AS heartbeat_age,
       r.clock_skew, r.fingerprint, r.handlers, r.diagnostics, r.stale_after
FROM {schema}.runners r;
COMMENT ON VIEW {schema}.runner_status IS 'The runners and how they are.';
COMMENT ON COLUMN {schema}.runner_status.runner_id IS 'Name of the runner.';
COMMENT ON COLUMN {schema}.runner_status.host IS 'Host it runs on.';
COMMENT ON COLUMN {schema}.runner_status.pid IS 'Its process id there.';
COMMENT ON COLUMN {schema}.runner_status.version IS 'Version of cronledger.';
COMMENT ON COLUMN {schema}.runner_status.state IS 'alive; refused: alive, but this is another database than the ledger''s own, and it takes nothing; draining: it takes nothing new; stopped: it left in good order; dead: it was not seen in time.';
COMMENT ON COLUMN {schema}.runner_status.queues IS 'Queues that it takes from.';
COMMENT ON COLUMN {schema}.runner_status.slots IS 'How many executions it runs at once.';
COMMENT ON COLUMN {schema}.runner_status.running IS 'How many it ran at the last heartbeat.';
COMMENT ON COLUMN {schema}.runner_status.load IS 'running / slots; NULL without slots.';
COMMENT ON COLUMN {schema}.runner_status.started_at IS 'When it registered.';
COMMENT ON COLUMN {schema}.runner_status.heartbeat_at IS 'When it was last seen.';
COMMENT ON COLUMN {schema}.runner_status.heartbeat_age IS 'How long ago that was.';
COMMENT ON COLUMN {schema}.runner_status.clock_skew IS 'Its wall clock minus the database''s; nothing is decided by it.';
COMMENT ON COLUMN {schema}.runner_status.fingerprint IS 'Versions of Python, croniter and the time zone data.';
COMMENT ON COLUMN {schema}.runner_status.handlers IS 'Python functions that it has.';
COMMENT ON COLUMN {schema}.runner_status.diagnostics IS 'How it was at the last heartbeat: executions, ticks, lag, lost leases, database errors.';
COMMENT ON COLUMN {schema}.runner_status.stale_after IS 'The runner counts as dead unless it checks in before this instant.';

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
COMMENT ON VIEW {schema}.runner_status IS 'The state of each runner.';
COMMENT ON COLUMN {schema}.runner_status.runner_id IS 'Name of the runner.';
COMMENT ON COLUMN {schema}.runner_status.host IS 'Host on which it runs.';
COMMENT ON COLUMN {schema}.runner_status.pid IS 'Its process id on that host.';
COMMENT ON COLUMN {schema}.runner_status.version IS 'Version of cronledger.';
COMMENT ON COLUMN {schema}.runner_status.state IS 'alive; refused: alive, but this is another database than the ledger''s own, and it claims nothing; draining: it claims nothing new; stopped: it has shut down; dead: it did not check in before stale_after.';
COMMENT ON COLUMN {schema}.runner_status.queues IS 'Queues that it serves.';
COMMENT ON COLUMN {schema}.runner_status.slots IS 'Number of executions that it can run at once.';
COMMENT ON COLUMN {schema}.runner_status.running IS 'Number of executions at the last check-in.';
COMMENT ON COLUMN {schema}.runner_status.load IS 'running / slots; NULL without slots.';
COMMENT ON COLUMN {schema}.runner_status.started_at IS 'When it registered.';
COMMENT ON COLUMN {schema}.runner_status.heartbeat_at IS 'When the runner last checked in. This is not a renewal of a lease. A worker in another language checks in with each claim and each heartbeat.';
COMMENT ON COLUMN {schema}.runner_status.heartbeat_age IS 'Time since the last check-in, which is heartbeat_at.';
COMMENT ON COLUMN {schema}.runner_status.clock_skew IS 'Its wall clock minus the clock of the database, for information only.';
COMMENT ON COLUMN {schema}.runner_status.fingerprint IS 'Versions of Python, croniter and the time zone data.';
COMMENT ON COLUMN {schema}.runner_status.handlers IS 'Python functions that it has imported.';
COMMENT ON COLUMN {schema}.runner_status.diagnostics IS 'Its state at the last check-in, as in /diagnostics with the twenty oldest executions: executions, ticks, lag, lost leases, database errors.';
COMMENT ON COLUMN {schema}.runner_status.stale_after IS 'The runner counts as dead unless it checks in before this instant.';

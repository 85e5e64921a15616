CREATE OR REPLACE VIEW {schema}.runner_status AS
SELECT r.id AS runner_id, r.host, r.pid, r.version,
       CASE WHEN r.state = 'stopped' THEN 'stopped'
            WHEN r.stale_after <= {schema}.db_now() THEN 'dead'
            WHEN r.state = 'draining' THEN 'draining'
            WHEN r.diagnostics ->> 'database' = 'other' THEN 'refused'
            WHEN {schema}_internal.loop_errors(r.diagnostics -> 'failing') IS NOT NULL THEN 'failing'
            ELSE 'alive' END AS state,
       r.queues, r.slots, coalesce(n.running, 0) AS running,
       CASE WHEN r.slots > 0 THEN round(coalesce(n.running, 0)::numeric / r.slots, 3) END AS load,
       r.started_at, r.heartbeat_at, {schema}.db_now() - r.heartbeat_at AS heartbeat_age,
       r.clock_skew, r.fingerprint, r.handlers, r.diagnostics, r.stale_after,
       {schema}_internal.loop_errors(r.diagnostics -> 'failing') AS failing, r.deploy,
       r.labels
FROM {schema}.runners r
LEFT JOIN (SELECT e.runner_id, count(*)::integer AS running FROM {schema}.executions e
           WHERE e.status = 'RUNNING' GROUP BY e.runner_id) n ON n.runner_id = r.id;
COMMENT ON VIEW {schema}.runner_status IS 'The state of each runner.';
COMMENT ON COLUMN {schema}.runner_status.runner_id IS 'Name of the runner.';
COMMENT ON COLUMN {schema}.runner_status.host IS 'Host on which it runs.';
COMMENT ON COLUMN {schema}.runner_status.pid IS 'Its process id on that host.';
COMMENT ON COLUMN {schema}.runner_status.version IS 'Version of cronledger.';
COMMENT ON COLUMN {schema}.runner_status.state IS 'alive; refused: alive, but this is another database than the ledger''s own, and it claims nothing; failing: alive, but the last step of a part of it failed, for example because the database accepts no writes; draining: it claims nothing new; stopped: it has shut down; dead: it did not check in before stale_after.';
COMMENT ON COLUMN {schema}.runner_status.queues IS 'Queues that it serves.';
COMMENT ON COLUMN {schema}.runner_status.slots IS 'Number of executions that it can run at once.';
COMMENT ON COLUMN {schema}.runner_status.running IS 'Number of its executions that are RUNNING in the ledger now.';
COMMENT ON COLUMN {schema}.runner_status.load IS 'running / slots; NULL without slots.';
COMMENT ON COLUMN {schema}.runner_status.started_at IS 'When it registered.';
COMMENT ON COLUMN {schema}.runner_status.heartbeat_at IS 'When the runner last checked in. This is not a renewal of a lease. A worker in another language checks in with each claim and each heartbeat.';
COMMENT ON COLUMN {schema}.runner_status.heartbeat_age IS 'Time since the last check-in, which is heartbeat_at.';
COMMENT ON COLUMN {schema}.runner_status.clock_skew IS 'Its wall clock minus the clock of the database, for information only.';
COMMENT ON COLUMN {schema}.runner_status.fingerprint IS 'Versions of Python, croniter and the time zone data.';
COMMENT ON COLUMN {schema}.runner_status.handlers IS 'Python functions that it has imported.';
COMMENT ON COLUMN {schema}.runner_status.diagnostics IS 'Its state at the last check-in, as in /diagnostics with the twenty oldest executions: executions, ticks, lag, lost leases, database errors.';
COMMENT ON COLUMN {schema}.runner_status.stale_after IS 'The runner counts as dead unless it checks in before this instant.';
COMMENT ON COLUMN {schema}.runner_status.failing IS 'The errors of its failing parts at the last check-in; NULL: there were none.';
COMMENT ON COLUMN {schema}.runner_status.deploy IS 'Ordered version of its deployment; NULL: none was given.';
COMMENT ON COLUMN {schema}.runner_status.labels IS 'Its labels, such as host=web1 and role=web, which jobs name in "on" and every.';

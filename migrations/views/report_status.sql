CREATE OR REPLACE VIEW {schema}.report_status AS
SELECT r.id, r.job_name, r.scope_kind, r.scope_id, r.run_key, r.started_at, r.ended_at, r.exit_status, r.host, r.source,
       r.received_at, r.end_received_at, r.plan_time, r.execution_id
FROM {schema}.reports r;
COMMENT ON VIEW {schema}.report_status IS 'Reports of runs that another scheduler started, without output and error, which the execution has.';
COMMENT ON COLUMN {schema}.report_status.id IS 'Id of the report.';
COMMENT ON COLUMN {schema}.report_status.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.report_status.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.report_status.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.report_status.run_key IS 'Key of the run; NULL: none was given.';
COMMENT ON COLUMN {schema}.report_status.started_at IS 'When the run started, by the clock of the database.';
COMMENT ON COLUMN {schema}.report_status.ended_at IS 'When the run ended; NULL: no end was reported.';
COMMENT ON COLUMN {schema}.report_status.exit_status IS 'Exit status of the run; NULL: none was reported.';
COMMENT ON COLUMN {schema}.report_status.host IS 'Host of the run; NULL: unknown.';
COMMENT ON COLUMN {schema}.report_status.source IS 'What reported the run: command, sql, http, or a name of the caller.';
COMMENT ON COLUMN {schema}.report_status.received_at IS 'When the ledger received the report.';
COMMENT ON COLUMN {schema}.report_status.end_received_at IS 'When the ledger received the end.';
COMMENT ON COLUMN {schema}.report_status.plan_time IS 'plan_time of its execution. A whole second is a plan_time of the schedule; any other is the start of a run beside the schedule. NULL: no claim has read the report yet.';
COMMENT ON COLUMN {schema}.report_status.execution_id IS 'Its execution.';

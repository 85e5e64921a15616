CREATE OR REPLACE VIEW {schema}.retention_status AS
SELECT r.keep, r.set_at, r.set_by FROM {schema}.retention r;
COMMENT ON VIEW {schema}.retention_status IS 'How long the ledger keeps executions, and with them skips, runners and alerts. Always one row.';
COMMENT ON COLUMN {schema}.retention_status.keep IS 'A partition of executions is dropped once all of its plan_times are older than this.';
COMMENT ON COLUMN {schema}.retention_status.set_at IS 'When it was set; NULL: never, so that it is the initial value.';
COMMENT ON COLUMN {schema}.retention_status.set_by IS 'Who set it; NULL: nobody.';

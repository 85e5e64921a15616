-- Payloads may be personal or secret, so only operators and runners may read them.
CREATE OR REPLACE VIEW {schema}.execution_payloads AS
SELECT e.id, e.payload FROM {schema}.executions e;
COMMENT ON VIEW {schema}.execution_payloads IS 'The payloads of executions.';
COMMENT ON COLUMN {schema}.execution_payloads.id IS 'Id of the execution.';
COMMENT ON COLUMN {schema}.execution_payloads.payload IS 'JSON that is passed to the handler.';

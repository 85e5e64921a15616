-- A view, because a reader of the ledger names no table.
CREATE OR REPLACE VIEW {schema}.running_output AS
SELECT c.execution_id, c.attempt, c.number, c.written_at, c.text FROM {schema}.output_chunks c;
COMMENT ON VIEW {schema}.running_output IS 'The output of executions that are RUNNING, in chunks, and that of stolen attempts. The output of an attempt that has ended is in execution_status.';
COMMENT ON COLUMN {schema}.running_output.execution_id IS 'The execution.';
COMMENT ON COLUMN {schema}.running_output.attempt IS 'Number of the attempt.';
COMMENT ON COLUMN {schema}.running_output.number IS 'Place of the chunk. Numbers may be missing, where the middle of a long output was left out.';
COMMENT ON COLUMN {schema}.running_output.written_at IS 'When the chunk was written.';
COMMENT ON COLUMN {schema}.running_output.text IS 'The output, with secrets masked.';

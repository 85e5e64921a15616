CREATE OR REPLACE VIEW {schema}.audit AS
SELECT a.id, a.at, a."session_user", a.requested_by, a.verb, a.object_kind, a.object, a.job_name, a.revision,
       a.execution_ids, a.arguments, a.reason, a.outcome, a.error
FROM {schema}.operator_actions a;
COMMENT ON VIEW {schema}.audit IS 'The audit trail: calls of operator functions, edits of jobs, queues and channels, and recorded refusals, one row each. Use ORDER BY at, id.';
COMMENT ON COLUMN {schema}.audit.id IS 'Id of the row.';
COMMENT ON COLUMN {schema}.audit.at IS 'When it was done, or refused.';
COMMENT ON COLUMN {schema}.audit."session_user" IS 'The role that had logged in. Quote the name of this column.';
COMMENT ON COLUMN {schema}.audit.requested_by IS 'The person or program that requested it, as the caller named it; by default the role.';
COMMENT ON COLUMN {schema}.audit.verb IS 'Name of the function; for an edit by SQL or apply also add, edit, return, delete, edit_queue, delete_queue, add_channel, edit_channel, delete_channel, edit_source.';
COMMENT ON COLUMN {schema}.audit.object_kind IS 'Kind of the object: job, queue, execution, channel, delivery, acceptance, ledger, pause, source, calendar, host.';
COMMENT ON COLUMN {schema}.audit.object IS 'Name of the job, queue or channel, or id of the execution, delivery or acceptance; NULL: all queues, or the ledger.';
COMMENT ON COLUMN {schema}.audit.job_name IS 'The job; NULL: the action is not about one job.';
COMMENT ON COLUMN {schema}.audit.revision IS 'Revision of the job that the action made; NULL: it made none. job_history has it.';
COMMENT ON COLUMN {schema}.audit.execution_ids IS 'Executions that it created, retried or cancelled. Of a backfill: those that it retried.';
COMMENT ON COLUMN {schema}.audit.arguments IS 'Arguments and results. Payloads and definitions are left out.';
COMMENT ON COLUMN {schema}.audit.reason IS 'The reason that was given; NULL: none.';
COMMENT ON COLUMN {schema}.audit.outcome IS 'done; unchanged: there was nothing to do; refused; or the result of the function, such as retried.';
COMMENT ON COLUMN {schema}.audit.error IS 'Why it was refused; NULL: it was not.';

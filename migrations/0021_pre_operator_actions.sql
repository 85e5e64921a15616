-- The audit trail: who did what to the ledger. Rows are only added (16_audit.sql).
CREATE SEQUENCE {schema}.operator_action_id AS bigint;
COMMENT ON SEQUENCE {schema}.operator_action_id IS 'Numbers operator_actions.';
CREATE TABLE {schema}.operator_actions (
    id            bigint NOT NULL DEFAULT nextval('{schema}.operator_action_id'),
    at            timestamptz NOT NULL,
    "session_user" text NOT NULL,
    requested_by  text NOT NULL,
    verb          text NOT NULL CHECK (verb ~ '^[a-z_]{1,63}$'),
    object_kind   text NOT NULL CHECK (object_kind IN ('job', 'queue', 'execution', 'acceptance', 'ledger')),
    object        text,
    job_name      text COLLATE "C",
    revision      bigint,
    execution_ids bigint[] NOT NULL DEFAULT '{}',
    arguments     jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(arguments) = 'object'),
    reason        text,
    outcome       text NOT NULL,
    error         text CHECK (length(error) <= 4000),
    CONSTRAINT refused_columns CHECK ((outcome = 'refused') = (error IS NOT NULL))
);
-- Not unique, because a restore or a logical replica without the sequence must not make every action fail.
CREATE INDEX operator_actions_id ON {schema}.operator_actions (id);
CREATE INDEX operator_actions_at ON {schema}.operator_actions (at, id);
CREATE INDEX operator_actions_job ON {schema}.operator_actions (job_name, at, id) WHERE job_name IS NOT NULL;
COMMENT ON TABLE {schema}.operator_actions IS 'The audit trail: one row for each call of an operator function, each edit of a job or queue, and each recorded refusal. UPDATE, DELETE and TRUNCATE are refused. Read through the view audit.';
COMMENT ON COLUMN {schema}.operator_actions.id IS 'Id of the row.';
COMMENT ON COLUMN {schema}.operator_actions.at IS 'When it was done, or refused.';
COMMENT ON COLUMN {schema}.operator_actions."session_user" IS 'The role that had logged in. Quote the name of this column.';
COMMENT ON COLUMN {schema}.operator_actions.requested_by IS 'The person or program that requested it, as the caller named it; by default the role.';
COMMENT ON COLUMN {schema}.operator_actions.verb IS 'Name of the function; for an edit by SQL or apply also add, edit, return, delete, edit_queue, delete_queue.';
COMMENT ON COLUMN {schema}.operator_actions.object_kind IS 'Kind of the object: job, queue, execution, acceptance, ledger.';
COMMENT ON COLUMN {schema}.operator_actions.object IS 'Name of the job or queue, or id of the execution or acceptance; NULL: all queues, or the ledger.';
COMMENT ON COLUMN {schema}.operator_actions.job_name IS 'The job; NULL: the action is not about one job.';
COMMENT ON COLUMN {schema}.operator_actions.revision IS 'Revision of the job that the action made; NULL: it made none.';
COMMENT ON COLUMN {schema}.operator_actions.execution_ids IS 'Executions that it created, retried or cancelled. Of a backfill: those that it retried.';
COMMENT ON COLUMN {schema}.operator_actions.arguments IS 'Arguments and results. Payloads and definitions are left out.';
COMMENT ON COLUMN {schema}.operator_actions.reason IS 'The reason that was given; NULL: none.';
COMMENT ON COLUMN {schema}.operator_actions.outcome IS 'done; unchanged: there was nothing to do; refused; or the result of the function, such as retried.';
COMMENT ON COLUMN {schema}.operator_actions.error IS 'Why it was refused; NULL: it was not.';

CREATE TABLE {schema}.actions_in_progress (
    xact xid8 PRIMARY KEY
);
COMMENT ON TABLE {schema}.actions_in_progress IS 'Transactions in which an operator function that edits jobs or queues, or that calls other functions, is in progress. Each row is deleted before it is committed, so no other transaction sees it.';
COMMENT ON COLUMN {schema}.actions_in_progress.xact IS 'The transaction.';

COMMENT ON TABLE {schema}.runners IS 'Processes that run executions. A row is kept for the retention of executions after the last check-in of its runner; after a day without its diagnostics.';

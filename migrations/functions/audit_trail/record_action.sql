-- The audit trail: each call of an operator function, and each edit of a job, queue or channel, is one row of
-- operator_actions, in the transaction of what it did. What replicas and workers do for executions writes none.
-- Lock: none that waits. The rows are inserted after the locks of the action, and nothing else writes them.

-- The operator functions. A caller records a refusal under one of these names.
CREATE OR REPLACE FUNCTION {schema}_internal.operator_verbs() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY['accept_database', 'accept_violation', 'adopt', 'backfill', 'cancel', 'cancel_many', 'change_pause', 'create_report_token', 'end_pause', 'limit_queue',
                 'pause', 'pause_all', 'pause_channel', 'pause_queue', 'plan_pause', 'redact', 'redact_revisions', 'refuse_database', 'rename_source', 'resume',
                 'resume_all', 'resume_channel', 'resume_queue', 'retire', 'retire_host', 'retry', 'retry_delivery', 'retry_many', 'revoke_report_token', 'set_calendar',
                 'set_retention', 'skip', 'test_channel', 'trigger', 'unskip', 'withdraw_acceptance']
$$;
COMMENT ON FUNCTION {schema}_internal.operator_verbs() IS 'Lists the operator functions, each of which records its calls.';

CREATE OR REPLACE FUNCTION {schema}_internal.record_action(
    verb text, object_kind text, object text, requested_by text, outcome text, job text DEFAULT NULL,
    revision bigint DEFAULT NULL, execution_ids bigint[] DEFAULT '{}', arguments jsonb DEFAULT '{}',
    reason text DEFAULT NULL, error text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
    -- The function that is in progress writes the row.
    IF EXISTS (SELECT FROM {schema}.actions_in_progress p WHERE p.xact = pg_current_xact_id()) THEN
        RETURN;
    END IF;
    INSERT INTO {schema}.operator_actions
        (at, "session_user", requested_by, verb, object_kind, object, job_name, revision, execution_ids,
         arguments, reason, outcome, error)
    VALUES ({schema}.db_clock(), session_user, coalesce(requested_by, session_user), verb, object_kind, object,
            job, revision, coalesce(execution_ids, '{}'), jsonb_strip_nulls(arguments), reason, outcome,
            left(error, 4000));
END $$;
COMMENT ON FUNCTION {schema}_internal.record_action(text, text, text, text, text, text, bigint, bigint[], jsonb, text, text) IS 'Records an action in operator_actions, unless an operator function is in progress that records it.';

-- A table and not a setting, because anyone who may edit jobs could set a setting, and hide an edit.
CREATE OR REPLACE FUNCTION {schema}_internal.begin_action() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.actions_in_progress (xact) VALUES (pg_current_xact_id()) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION {schema}_internal.begin_action() IS 'Makes the edits and functions that follow record nothing, until end_action. Returns false if another operator function is in progress.';

CREATE OR REPLACE FUNCTION {schema}_internal.end_action(began boolean) RETURNS void LANGUAGE sql AS $$
    DELETE FROM {schema}.actions_in_progress p WHERE began AND p.xact = pg_current_xact_id()
$$;
COMMENT ON FUNCTION {schema}_internal.end_action(boolean) IS 'Ends what begin_action began; began: the value that it returned. record_action follows.';

-- The audit trail: each call of an operator function, and each edit of a job or queue, is one row of
-- operator_actions, in the transaction of what it did. What replicas and workers do for executions writes none.
-- Lock: none that waits. The rows are inserted after the locks of the action, and nothing else writes them.

-- The operator functions. A caller records a refusal under one of these names.
CREATE OR REPLACE FUNCTION {schema}_internal.operator_verbs() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY['accept_database', 'accept_violation', 'backfill', 'cancel', 'limit_queue', 'pause', 'pause_all',
                 'pause_queue', 'resume', 'resume_all', 'resume_queue', 'retire', 'retry', 'trigger',
                 'withdraw_acceptance']
$$;
COMMENT ON FUNCTION {schema}_internal.operator_verbs() IS 'Lists the operator functions, each of which records its calls.';

CREATE OR REPLACE FUNCTION {schema}_internal.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: % is refused, because rows are only added to the audit trail', TG_TABLE_NAME, TG_OP
        USING HINT = 'Read it through the view {schema}.audit. Its rows are kept as long as job_revisions.',
              ERRCODE = 'restrict_violation';
END $$;
COMMENT ON FUNCTION {schema}_internal.refuse_change() IS 'Runs before a change or removal of rows of operator_actions, and raises.';

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

-- Records an edit by SQL or by apply: its revision, and the names of the changed fields. It does not record the end of
-- a pause at paused_until or a new spec_error, because a replica writes these and no operator does.
CREATE OR REPLACE FUNCTION {schema}_internal.jobs_record_edit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    silent CONSTANT text[] := ARRAY['revision', 'edited_by', 'spec_error', 'deploy'];
    pause  CONSTANT text[] := ARRAY['paused_at', 'paused_by', 'paused_reason', 'paused_until'];
    before jsonb;
    after  jsonb;
    fields text[];
    verb   text := 'edit';
    editor text;
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM {schema}_internal.record_action('delete', 'job', OLD.name, NULL, 'done', OLD.name,
            (SELECT max(r.revision) FROM {schema}.job_revisions r WHERE r.job_name = OLD.name));
        RETURN NULL;
    ELSIF TG_OP = 'INSERT' THEN
        PERFORM {schema}_internal.record_action('add', 'job', NEW.name, NEW.edited_by, 'done', NEW.name,
            NEW.revision, arguments => jsonb_build_object('source', NEW.source, 'deploy', NEW.deploy));
        RETURN NULL;
    END IF;
    before := to_jsonb(OLD) - silent;
    after := to_jsonb(NEW) - silent;
    IF before = after OR (
           NEW.paused_at IS NULL AND OLD.paused_until <= {schema}.db_clock()
           AND (NEW.retired_at IS NULL) = (OLD.retired_at IS NULL)
           AND {schema}_internal.job_definition(NEW) = {schema}_internal.job_definition(OLD)) THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(n.key ORDER BY n.key COLLATE "C") INTO fields
    FROM jsonb_each(after) n WHERE n.value IS DISTINCT FROM before -> n.key;
    IF (NEW.retired_at IS NULL) <> (OLD.retired_at IS NULL) THEN
        verb := CASE WHEN NEW.retired_at IS NULL THEN 'return' ELSE 'retire' END;
    ELSIF fields <@ pause THEN
        verb := CASE WHEN NEW.paused_at IS NULL THEN 'resume' ELSE 'pause' END;
    END IF;
    -- Without a revision, the row has the editor of the previous edit, unless this one names another.
    IF NEW.revision <> OLD.revision OR NEW.edited_by IS DISTINCT FROM OLD.edited_by THEN
        editor := NEW.edited_by;
    END IF;
    PERFORM {schema}_internal.record_action(verb, 'job', NEW.name, editor, 'done', NEW.name,
        CASE WHEN NEW.revision <> OLD.revision THEN NEW.revision END,
        arguments => jsonb_build_object('fields', fields, 'source', NEW.source, 'deploy', NEW.deploy),
        reason => CASE verb WHEN 'pause' THEN NEW.paused_reason END);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_record_edit() IS 'Runs after a write to jobs. Records the edit of each job in the audit trail, unless an operator function makes it.';


CREATE OR REPLACE FUNCTION {schema}_internal.queues_record_edit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before  jsonb := coalesce(to_jsonb(OLD), '{"max_running": null, "paused_at": null, "paused_by": null, "paused_reason": null}');
    fields  text[];
    verb    text := 'edit_queue';
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM {schema}_internal.record_action('delete_queue', 'queue', OLD.name, NULL, 'done');
        RETURN NULL;
    END IF;
    SELECT array_agg(n.key ORDER BY n.key COLLATE "C") INTO fields
    FROM jsonb_each(to_jsonb(NEW)) n WHERE n.value IS DISTINCT FROM before -> n.key AND n.key <> 'name';
    IF TG_OP = 'UPDATE' AND fields IS NULL AND NEW.name = OLD.name THEN
        RETURN NULL;
    ELSIF fields = ARRAY['max_running'] THEN
        verb := 'limit_queue';
    ELSIF fields <@ ARRAY['paused_at', 'paused_by', 'paused_reason'] THEN
        verb := CASE WHEN NEW.paused_at IS NULL THEN 'resume_queue' ELSE 'pause_queue' END;
    END IF;
    PERFORM {schema}_internal.record_action(verb, 'queue', NEW.name,
        CASE verb WHEN 'pause_queue' THEN NEW.paused_by END, 'done',
        arguments => jsonb_build_object('fields', fields, 'max_running', NEW.max_running),
        reason => CASE verb WHEN 'pause_queue' THEN NEW.paused_reason END);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.queues_record_edit() IS 'Runs after a write to queues. Records the edit of each queue in the audit trail, unless an operator function makes it.';

-- Created only where they are missing, because creating a trigger waits for every writer of its table. In the order
-- in which the operator functions lock these tables. Triggers of one kind fire in the order of their names:
-- record_edit after append_revision and record_deletion.
DO $$
DECLARE
    made record;
BEGIN
    FOR made IN SELECT v.* FROM (VALUES
        ('queues', 'record_edit', 'AFTER INSERT OR UPDATE OR DELETE', 'ROW', 'queues_record_edit'),
        ('jobs', 'record_edit', 'AFTER INSERT OR UPDATE OR DELETE', 'ROW', 'jobs_record_edit'),
        ('operator_actions', 'refuse_change', 'BEFORE UPDATE OR DELETE OR TRUNCATE', 'STATEMENT', 'refuse_change'))
        AS v(of_table, name, event, level, function)
    LOOP
        IF NOT EXISTS (SELECT FROM pg_trigger t
                       WHERE t.tgrelid = format('{schema}.%I', made.of_table)::regclass AND t.tgname = made.name) THEN
            EXECUTE format('CREATE TRIGGER %I %s ON {schema}.%I FOR EACH %s EXECUTE FUNCTION {schema}_internal.%I()',
                           made.name, made.event, made.of_table, made.level, made.function);
        END IF;
    END LOOP;
END $$;
COMMENT ON TRIGGER record_edit ON {schema}.queues IS 'Calls queues_record_edit().';
COMMENT ON TRIGGER record_edit ON {schema}.jobs IS 'Calls jobs_record_edit().';
COMMENT ON TRIGGER refuse_change ON {schema}.operator_actions IS 'Calls refuse_change().';

-- A function that refuses raises, and its transaction is rolled back. Its caller records that afterwards.
CREATE OR REPLACE FUNCTION {schema}.record_refusal(
    verb text, arguments jsonb, error text, requested_by text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    kind text := CASE WHEN verb IN ('cancel', 'retry') THEN 'execution'
                      WHEN verb IN ('pause_queue', 'resume_queue', 'limit_queue', 'pause_all', 'resume_all') THEN 'queue'
                      WHEN verb IN ('accept_violation', 'withdraw_acceptance') THEN 'acceptance'
                      WHEN verb = 'accept_database' THEN 'ledger'
                      ELSE 'job' END;
    id   bigint;
    kept jsonb;
    job  text;
BEGIN
    IF verb IS NULL OR verb <> ALL ({schema}_internal.operator_verbs()) THEN
        RAISE EXCEPTION 'record_refusal: verb % is not an operator function', coalesce(verb, 'NULL')
            USING HINT = 'Use one of ' || array_to_string({schema}_internal.operator_verbs(), ', ') || '.',
                  ERRCODE = 'invalid_parameter_value';
    ELSIF error IS NULL OR jsonb_typeof(arguments) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'record_refusal: error % or arguments % is missing, or arguments is not an object',
                left(error, 60), left(arguments::text, 60)
            USING HINT = 'Pass the text of the error, and the arguments of the call as a JSON object.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT coalesce(jsonb_object_agg(a.key, CASE jsonb_typeof(a.value)
               WHEN 'string' THEN to_jsonb(left(a.value #>> '{}', 200)) ELSE a.value END), '{}')
    INTO kept FROM jsonb_each(arguments) a
    WHERE a.key NOT IN ('payload', 'reason', 'requested_by')
      AND jsonb_typeof(a.value) IN ('string', 'number', 'boolean');
    job := arguments ->> 'job';
    IF kind = 'execution' THEN
        id := (arguments ->> 'execution_id')::bigint;
        SELECT e.job_name INTO job FROM {schema}.executions e WHERE e.id = id;
    END IF;
    PERFORM {schema}_internal.record_action(verb, kind, CASE kind WHEN 'job' THEN job
                WHEN 'queue' THEN kept ->> 'queue' WHEN 'execution' THEN id::text
                WHEN 'acceptance' THEN kept ->> 'acceptance' END,
        requested_by, 'refused', job,
        arguments => kept - ARRAY['job', 'queue', 'execution_id', 'acceptance'],
        reason => left(arguments ->> 'reason', 4000), error => error);
END $$;
COMMENT ON FUNCTION {schema}.record_refusal(text, jsonb, text, text) IS 'Records in the audit trail that an operator function refused a call. verb: the function. arguments: those of the call by name, of which payloads and lists are left out. error: its message. Call it in a new transaction, because the refusal has ended the other one.';

-- Input: work that is enqueued for a job, and how much of it is done.
-- A call of enqueue is a message (without a key: an execution of its own), an update (with a key: one waiting
-- execution of this key, the newest payload), or a signal (a watermark alone: one waiting execution of the
-- scope, with enqueue_key ''). schedules.input_watermark is the greatest watermark that was enqueued, and each
-- claim copies it. success_watermark is the greatest one that a SUCCESS covers. If it is less, the scope is
-- dirty.
-- Lock order: queues, jobs, schedules, executions. success_watermark is derived, so a transaction that cannot
-- lock the schedule row leaves it to the next one; no decision is made by an old value.
-- A message locks nothing, because it is enqueued in transactions that may stay open: replicas would start nothing
-- of its scope until the commit. Its plan_time follows from its id, so that two open transactions cannot choose the
-- same one. If the job is retired before the commit, the sweeper cancels the message.

CREATE OR REPLACE FUNCTION {schema}_internal.create_enqueued(
    definition {schema}.jobs, scope {schema}.schedules, at timestamptz, due timestamptz, slot text,
    new_payload jsonb, new_watermark bigint, of_group uuid, requester text, enqueued_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    INSERT INTO {schema}.executions
        (job_name, scope_kind, scope_id, plan_time, status, trigger, revision, queue, due_at,
         next_attempt_at, payload, enqueue_key, watermark, group_id, attempt, max_attempts, requested_by,
         traceparent)
    VALUES (scope.job_name, scope.scope_kind, scope.scope_id, at, 'PENDING', 'enqueue',
            definition.revision, definition.queue, due, due, coalesce(new_payload, definition.payload),
            slot, new_watermark, of_group, 0, definition.max_attempts, requester, enqueued_by)
    RETURNING id INTO made;
    RETURN made;
END $$;
COMMENT ON FUNCTION {schema}_internal.create_enqueued({schema}.jobs, {schema}.schedules, timestamptz, timestamptz, text, jsonb, bigint, uuid, text, text) IS 'Creates a PENDING execution with the attempts of the job, and returns its id. enqueued_by: its traceparent. The caller holds the lock of the schedule row.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_enqueue(job text, key text, group_id uuid, other bigint, of_group uuid)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF length(key) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'job %: key % is not a text of 1 to 200 characters', job, quote_literal(left(key, 40))
            USING HINT = 'Leave the key out: the work is then never merged with other work.',
                  ERRCODE = 'invalid_parameter_value';
    ELSIF group_id <> of_group THEN
        RAISE EXCEPTION 'job %: execution % is PENDING with this key in another group', job, other
            USING HINT = 'One execution cannot be followed in two groups; leave key or group_id out.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_enqueue(text, text, uuid, bigint, uuid) IS 'Raises if this key or this group cannot be enqueued.';

CREATE OR REPLACE FUNCTION {schema}_internal.merge_enqueued(
    scope {schema}.schedules, slot text, watermark bigint, payload jsonb, group_id uuid, requester text,
    enqueued_by text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    held record;
    at   timestamptz := {schema}.db_clock();
BEGIN
    -- Two wait where one was released beside its successor: the newest payload is to run last.
    -- Ordered outside: for ORDER BY beside the conditions, a plan may walk all executions of the scope.
    WITH waiting AS MATERIALIZED (
        SELECT e.plan_time, e.id, e.group_id FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (scope.job_name, scope.scope_kind, scope.scope_id)
          AND e.enqueue_key = slot AND e.next_attempt_at IS NOT NULL AND e.status = 'PENDING'
        FOR NO KEY UPDATE
    )
    SELECT w.* INTO held FROM waiting w ORDER BY w.plan_time DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM {schema}_internal.check_enqueue(scope.job_name, NULL, merge_enqueued.group_id, held.id, held.group_id);
    UPDATE {schema}.executions e
    SET watermark = greatest(e.watermark, merge_enqueued.watermark),
        payload = coalesce(merge_enqueued.payload, e.payload),
        group_id = coalesce(e.group_id, merge_enqueued.group_id),
        due_at = least(e.due_at, at), next_attempt_at = least(e.due_at, at),
        max_attempts = greatest(e.max_attempts,
            e.attempt + (SELECT j.max_attempts FROM {schema}.jobs j WHERE j.name = e.job_name)),
        requested_by = requester, traceparent = coalesce(enqueued_by, e.traceparent), updated_at = at
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
        = (scope.job_name, scope.scope_kind, scope.scope_id, held.plan_time);
    RETURN held.id;
END $$;
COMMENT ON FUNCTION {schema}_internal.merge_enqueued({schema}.schedules, text, bigint, jsonb, uuid, text, text) IS 'Merges work into the PENDING execution of its key: the greater watermark, the newest payload, the newest traceparent (enqueued_by), due now, all attempts of the job. Returns its id; NULL: there is none. The caller holds the lock of the schedule row.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_due_at(
    job text, due_at timestamptz, key text, watermark bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF key IS NOT NULL OR watermark IS NOT NULL THEN
        RAISE EXCEPTION 'job %: due_at % is given with a %', job, {schema}_internal.utc_text(due_at),
                CASE WHEN key IS NOT NULL THEN 'key' ELSE 'watermark' END
            USING HINT = 'Merged input is due now; leave due_at out, or key and watermark.',
                  ERRCODE = 'invalid_parameter_value';
    ELSIF NOT isfinite(due_at) THEN
        RAISE EXCEPTION 'job %: due_at % is not an instant', job, due_at
            USING HINT = 'Leave it out to enqueue for now.', ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_due_at(text, timestamptz, text, bigint) IS 'Raises if this work cannot wait until due_at.';

CREATE OR REPLACE FUNCTION {schema}.enqueue(
    job text, scope_id text DEFAULT 'global', watermark bigint DEFAULT NULL, payload jsonb DEFAULT NULL,
    key text DEFAULT NULL, scope_kind text DEFAULT NULL, group_id uuid DEFAULT NULL,
    requested_by text DEFAULT NULL, due_at timestamptz DEFAULT NULL, traceparent text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    requester  text := coalesce(requested_by, session_user);
    definition {schema}.jobs;
    kind       text;
    scope      {schema}.schedules;
    slot       text := coalesce(key, CASE WHEN payload IS NULL AND watermark IS NOT NULL THEN '' END);
    is_new     boolean;
    at         timestamptz;
    made       bigint;
BEGIN
    IF length(key) NOT BETWEEN 1 AND 200 THEN
        PERFORM {schema}_internal.check_enqueue(job, key, NULL, NULL, NULL);
    END IF;
    IF due_at IS NOT NULL THEN
        PERFORM {schema}_internal.check_due_at(job, due_at, key, watermark);
    END IF;
    IF traceparent IS NOT NULL THEN
        PERFORM {schema}_internal.check_traceparent(job, traceparent);
    END IF;
    IF payload IS NOT NULL THEN
        PERFORM {schema}_internal.check_json(job, 'payload', payload);
    END IF;
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = enqueue.job;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    END IF;
    kind := coalesce(enqueue.scope_kind, definition.scope_kind);
    IF key IS NULL AND watermark IS NULL THEN
        scope := {schema}_internal.find_or_create_scope(job, kind, scope_id);
        IF definition.retired_at IS NOT NULL OR definition.handler = 'observed' OR (scope.retired_at IS NOT NULL AND scope.returned_at IS NULL) THEN
            PERFORM {schema}_internal.check_trigger(definition, scope, force => true);
        END IF;
        made := {schema}_internal.create_message(definition, kind, scope_id, due_at, payload, group_id, requester,
                                                      traceparent);
        PERFORM pg_notify('{schema}', 'pending');
        RETURN made;
    END IF;
    scope := {schema}_internal.lock_or_create_scope(job, kind, scope_id);
    -- Again under the lock: no edit commits from here on.
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = enqueue.job;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    END IF;
    IF definition.retired_at IS NOT NULL OR definition.handler = 'observed' OR (scope.retired_at IS NOT NULL AND scope.returned_at IS NULL) THEN
        PERFORM {schema}_internal.check_trigger(definition, scope, force => true);
    END IF;
    is_new := coalesce(watermark > scope.input_watermark, watermark IS NOT NULL);
    IF is_new THEN
        scope.input_watermark := watermark;
        UPDATE {schema}.schedules s SET input_watermark = watermark
        WHERE (s.job_name, s.scope_kind, s.scope_id)
            = (scope.job_name, scope.scope_kind, scope.scope_id);
    END IF;
    IF slot = '' THEN
        scope := {schema}_internal.settle_input(scope);
        IF watermark <= scope.success_watermark THEN
            RETURN NULL;
        END IF;
        made := CASE WHEN NOT is_new THEN {schema}_internal.covering_execution(scope) END;
        IF made IS NOT NULL THEN
            RETURN made;
        END IF;
    END IF;
    IF slot IS NOT NULL THEN
        made := {schema}_internal.merge_enqueued(scope, slot, watermark, payload, group_id, requester,
                                                      traceparent);
    END IF;
    IF made IS NULL THEN
        at := {schema}_internal.free_plan_time(scope, {schema}.db_clock());
        made := {schema}_internal.create_enqueued(
            definition, scope, at, at, slot, payload, watermark, group_id, requester, traceparent);
    END IF;
    IF slot IS NOT NULL THEN
        PERFORM {schema}_internal.give_up_superseded(scope);
    END IF;
    PERFORM pg_notify('{schema}', 'pending');
    RETURN made;
END $$;
COMMENT ON FUNCTION {schema}.enqueue(text, text, bigint, jsonb, text, text, uuid, text, timestamptz, text) IS 'Enqueues work for a job, and returns the id of the execution that does it. With a key, it merges into the PENDING execution of this key: the greater watermark, the newest payload, due now. While an execution of the key is RUNNING, one successor waits. If one awaits a retry, the new execution replaces it, with all attempts of the job. A watermark alone merges with the pending input of the scope; it returns NULL if a success covers it already. Without key and watermark, each call creates an execution, which starts at due_at or later if that is given. In a pause the work waits. traceparent: the span that enqueues, in the W3C format, to which the traces of the attempts link. A missing scope is created if the job has a scope_kind and no fixed scopes. Without key and watermark, a call for an existing scope takes no lock. Otherwise it waits for the lock of the schedule row (lock_timeout), and holds it until the transaction ends.';

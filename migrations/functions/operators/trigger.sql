-- Operator functions: an additional execution.
-- All operator functions are SECURITY DEFINER. An operator needs no right on a table, and cannot write in
-- another way what they write. session_user is still the operator.

CREATE OR REPLACE FUNCTION {schema}_internal.refuse_observed(definition {schema}.jobs)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF definition.handler = 'observed' THEN
        RAISE EXCEPTION 'job %: it is observed, so the ledger cannot start a run of it', definition.name
            USING HINT = 'Start the run with its own scheduler. Its report becomes an execution.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.refuse_observed({schema}.jobs) IS 'Raises if another scheduler starts the runs of this job.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_trigger(
    definition {schema}.jobs, scope {schema}.schedules, force boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    paused {schema}.queues;
BEGIN
    IF definition.retired_at IS NOT NULL OR (scope.retired_at IS NOT NULL AND scope.returned_at IS NULL) THEN
        RAISE EXCEPTION 'job %: % retired', definition.name, CASE WHEN definition.retired_at IS NOT NULL
                THEN 'it is' ELSE format('its scope %s/%s is', scope.scope_kind, scope.scope_id) END
            USING HINT = 'A retired job or scope does not run; add it again first.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM {schema}_internal.refuse_observed(definition);
    IF force THEN
        RETURN;
    END IF;
    IF definition.paused_at IS NOT NULL
       AND coalesce(definition.paused_until > {schema}.db_clock(), true) THEN
        RAISE EXCEPTION 'job %: it has been paused since %', definition.name, {schema}_internal.utc_text(definition.paused_at)
            USING DETAIL = coalesce(definition.paused_reason, 'No reason was given.'),
                  HINT = 'Resume it, or trigger it with force => true: that execution starts in the pause.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    SELECT q.* INTO paused FROM {schema}.queues q
    WHERE q.name = definition.queue AND q.paused_at IS NOT NULL;
    IF FOUND THEN
        RAISE EXCEPTION 'job %: its queue % has been paused since %', definition.name, paused.name, {schema}_internal.utc_text(paused.paused_at)
            USING DETAIL = coalesce(paused.paused_reason, 'No reason was given.'),
                  HINT = 'Resume the queue, or use force => true: the execution then starts once it is resumed.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_trigger({schema}.jobs, {schema}.schedules, boolean) IS 'Raises if this job may not be triggered for this scope now. With force, pauses are ignored; a retirement is not.';

CREATE OR REPLACE FUNCTION {schema}_internal.apply_overlap(
    definition {schema}.jobs, scope {schema}.schedules, requester text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    running_id bigint;
BEGIN
    IF definition.overlap = 'skip' THEN
        SELECT e.id INTO running_id FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id)
            = (scope.job_name, scope.scope_kind, scope.scope_id)
          AND e.status = 'RUNNING' AND e.runner_id <> 'observed' LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'job %: execution % of %/% is RUNNING, and overlap is skip', definition.name,
                    running_id, scope.scope_kind, scope.scope_id
                USING HINT = format('Wait for it, or end it with {schema}.cancel(%s).', running_id),
                      ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
    ELSIF definition.overlap = 'replace' THEN
        -- A request only, so it waits for a heartbeat or a finish and passes a user's assert_lease.
        WITH held AS MATERIALIZED (
            SELECT e.plan_time FROM {schema}.executions e
            WHERE (e.job_name, e.scope_kind, e.scope_id)
                = (scope.job_name, scope.scope_kind, scope.scope_id)
              AND e.status = 'RUNNING' AND e.runner_id <> 'observed' AND e.cancel_requested_at IS NULL
            ORDER BY e.plan_time FOR NO KEY UPDATE
        )
        UPDATE {schema}.executions e
        SET cancel_requested_at = {schema}.db_clock(), cancel_requested_by = requester,
            updated_at = {schema}.db_clock()
        FROM held h
        WHERE (e.job_name, e.scope_kind, e.scope_id)
            = (scope.job_name, scope.scope_kind, scope.scope_id) AND e.plan_time = h.plan_time
          AND e.status = 'RUNNING' AND e.cancel_requested_at IS NULL;
        IF FOUND THEN
            PERFORM pg_notify('{schema}', 'cancel');
        END IF;
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.apply_overlap({schema}.jobs, {schema}.schedules, text) IS 'Applies the overlap policy to a triggered execution: skip raises while an execution is RUNNING, and replace requests that it ends. Both ignore runs of another scheduler. The caller holds the lock of the schedule row.';

CREATE OR REPLACE FUNCTION {schema}_internal.free_plan_time(
    scope {schema}.schedules, near timestamptz, step interval DEFAULT '1 microsecond')
RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    at timestamptz := near;
BEGIN
    -- An odd number of microseconds: whole seconds are the schedule's, and even numbers those of messages, whose
    -- transactions may still be open.
    WHILE extract(microseconds FROM at)::bigint % 2 = 0 OR EXISTS (
        SELECT FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
            = (scope.job_name, scope.scope_kind, scope.scope_id, at)) LOOP
        at := at + step;
    END LOOP;
    PERFORM {schema}_internal.check_partition(scope.job_name, at);
    RETURN at;
END $$;
COMMENT ON FUNCTION {schema}_internal.free_plan_time({schema}.schedules, timestamptz, interval) IS 'Returns the first instant from here on that no execution of this scope has, and that neither a schedule nor a message can have. The caller holds the lock of the schedule row.';

CREATE OR REPLACE FUNCTION {schema}.trigger(
    job text, scope_kind text DEFAULT 'global', scope_id text DEFAULT 'global',
    payload jsonb DEFAULT NULL, force boolean DEFAULT false, requested_by text DEFAULT NULL,
    require_runner boolean DEFAULT false, traceparent text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    requester  text := coalesce(requested_by, session_user);
    definition {schema}.jobs;
    scope      {schema}.schedules;
    at         timestamptz;
    made       bigint;
    created    timestamptz;
BEGIN
    PERFORM {schema}_internal.check_json(job, 'payload', payload);
    IF traceparent IS NOT NULL THEN
        PERFORM {schema}_internal.check_traceparent(job, traceparent);
    END IF;
    -- The schedule row first. An edit needs this lock to commit, so the job that the next statement reads is
    -- valid until our commit.
    SELECT s.* INTO scope FROM {schema}.schedules s
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (trigger.job, trigger.scope_kind, trigger.scope_id)
    FOR NO KEY UPDATE;
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = trigger.job;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    ELSIF scope.job_name IS NULL THEN
        PERFORM {schema}_internal.raise_unknown_scope(job, scope_kind, scope_id);
    END IF;
    PERFORM {schema}_internal.check_trigger(definition, scope, force);
    PERFORM {schema}_internal.check_runner(
        definition, require_runner, CASE scope.scope_kind WHEN 'host' THEN scope.scope_id END);
    PERFORM {schema}_internal.apply_overlap(definition, scope, requester);
    at := {schema}_internal.free_plan_time(scope, {schema}.db_clock());
    INSERT INTO {schema}.executions
        (job_name, scope_kind, scope_id, plan_time, status, trigger, revision, queue, due_at,
         next_attempt_at, payload, attempt, max_attempts, requested_by, traceparent)
    VALUES (scope.job_name, scope.scope_kind, scope.scope_id, at, 'PENDING', 'manual',
            definition.revision, definition.queue, at, at, coalesce(payload, definition.payload), 0,
            definition.max_attempts, requester, traceparent)
    RETURNING id, created_at INTO made, created;
    PERFORM {schema}_internal.note_manual_deadlines(definition, scope, at, created);
    PERFORM {schema}_internal.record_action('trigger', 'job', job, requester, 'done', job, execution_ids => ARRAY[made],
        arguments => jsonb_build_object('scope_kind', scope_kind, 'scope_id', scope_id, 'force', force,
                                        'require_runner', require_runner));
    PERFORM pg_notify('{schema}', 'pending');
    RETURN made;
END $$;
COMMENT ON FUNCTION {schema}.trigger(text, text, text, jsonb, boolean, text, boolean, text) IS 'Makes one execution of a job due now, in addition to its schedule, and returns its id. schedule_delay and jitter do not apply. traceparent: the span that triggers it, see enqueue. Raises if the job is unknown or retired, if it is paused unless force is true, and with overlap = skip while an execution is RUNNING. If no live runner can run it: a WARNING, or with require_runner an error. Waits for the lock of the schedule row (lock_timeout).';

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

CREATE OR REPLACE FUNCTION {schema}_internal.covered_watermark(scope {schema}.schedules) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN greatest(scope.success_watermark, (
        SELECT max(e.watermark) FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id)
            = (scope.job_name, scope.scope_kind, scope.scope_id)
          AND e.status = 'SUCCESS' AND e.watermark IS NOT NULL));
END $$;
COMMENT ON FUNCTION {schema}_internal.covered_watermark({schema}.schedules) IS 'Returns the greatest watermark of a SUCCESS of this scope; NULL: there is none.';

-- Without enqueued_by.
DROP FUNCTION IF EXISTS {schema}_internal.create_enqueued({schema}.jobs, {schema}.schedules, timestamptz, timestamptz, text, jsonb, bigint, uuid, text);
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

CREATE OR REPLACE FUNCTION {schema}_internal.message_plan_time(execution_id bigint, before timestamptz)
RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT before - interval '1 microsecond'
        * ((date_part('microseconds', before)::bigint + 999998 - 2 * (execution_id % 499999)) % 1000000)
$$;
COMMENT ON FUNCTION {schema}_internal.message_plan_time(bigint, timestamptz) IS 'Returns the last instant up to before whose fraction of a second is that of this id: an even number of microseconds, 2 to 999,998. Within a second two messages share a fraction only if 499,999 ids lie between them.';

-- Without enqueued_by.
DROP FUNCTION IF EXISTS {schema}_internal.create_message({schema}.jobs, text, text, timestamptz, jsonb, uuid, text);
CREATE OR REPLACE FUNCTION {schema}_internal.create_message(
    definition {schema}.jobs, kind text, scope text, due timestamptz, new_payload jsonb, of_group uuid,
    requester text, enqueued_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    made constant bigint := nextval('{schema}.execution_id');
    now_ constant timestamptz := {schema}.db_clock();
    at   timestamptz := {schema}_internal.message_plan_time(made, now_);
BEGIN
    -- After the clock was set back, a second occurs again. ON CONFLICT would cost as much as the rest of the INSERT.
    WHILE EXISTS (SELECT FROM {schema}.executions e
                  WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (definition.name, kind, scope, at)) LOOP
        at := at - interval '1 second';
    END LOOP;
    PERFORM {schema}_internal.check_partition(definition.name, at);
    INSERT INTO {schema}.executions
        (job_name, scope_kind, scope_id, plan_time, id, status, trigger, revision, queue, due_at,
         next_attempt_at, payload, group_id, attempt, max_attempts, requested_by, traceparent)
    VALUES (definition.name, kind, scope, at, made, 'PENDING', 'enqueue', definition.revision, definition.queue,
            greatest(due, now_), greatest(due, now_), coalesce(new_payload, definition.payload), of_group, 0,
            definition.max_attempts, requester, enqueued_by);
    RETURN made;
END $$;
COMMENT ON FUNCTION {schema}_internal.create_message({schema}.jobs, text, text, timestamptz, jsonb, uuid, text, text) IS 'Creates a PENDING execution that is merged with no other one, due now or at due, and returns its id. enqueued_by: its traceparent. It needs no lock.';

CREATE OR REPLACE FUNCTION {schema}_internal.lock_or_create_scope(job text, kind text, scope text)
RETURNS {schema}.schedules LANGUAGE plpgsql AS $$
DECLARE
    held       {schema}.schedules;
    definition {schema}.jobs;
    at         timestamptz;
BEGIN
    IF scope IS NULL OR length(scope) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'job %: scope_id % is not a text of 1 to 200 characters', job,
                coalesce(quote_literal(left(scope, 40)), 'NULL')
            USING HINT = 'Leave it out for a job of one scope.', ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT s.* INTO held FROM {schema}.schedules s
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (job, kind, scope) FOR NO KEY UPDATE;
    IF FOUND THEN
        RETURN held;
    END IF;
    -- SHARE: an edit that is under way would not give the new row its queue.
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = job FOR SHARE;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    ELSIF definition.scope_kind = 'global' OR definition.scopes IS NOT NULL OR scope = 'global'
          OR kind <> definition.scope_kind OR definition.retired_at IS NOT NULL THEN
        PERFORM {schema}_internal.raise_unknown_scope(job, kind, scope);
    END IF;
    at := {schema}.db_clock();
    INSERT INTO {schema}.schedules
        (job_name, scope_kind, scope_id, queue, planned_through, planned_revision, next_due_at,
         woken, created_at)
    VALUES (job, kind, scope, definition.queue, at, definition.revision, at, true, at)
    ON CONFLICT (job_name, scope_kind, scope_id) DO NOTHING;
    IF FOUND THEN
        PERFORM {schema}_internal.date_at_commit(
            job, at, kinds => ARRAY[kind], scopes => ARRAY[scope], changes => ARRAY['appears']);
    END IF;
    SELECT s.* INTO held FROM {schema}.schedules s
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (job, kind, scope) FOR NO KEY UPDATE;
    PERFORM pg_notify('{schema}', 'jobs');
    RETURN held;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_or_create_scope(text, text, text) IS 'Locks and returns the schedule row of a scope. A missing scope is created, with a history that starts now, if the job has a scope_kind and no fixed scopes; otherwise it raises. A scope provider retires the scopes that it does not return.';

CREATE OR REPLACE FUNCTION {schema}_internal.find_or_create_scope(job text, kind text, scope text)
RETURNS {schema}.schedules LANGUAGE plpgsql AS $$
DECLARE
    known {schema}.schedules;
BEGIN
    SELECT s.* INTO known FROM {schema}.schedules s
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (job, kind, scope);
    IF NOT FOUND THEN
        known := {schema}_internal.lock_or_create_scope(job, kind, scope);
    END IF;
    RETURN known;
END $$;
COMMENT ON FUNCTION {schema}_internal.find_or_create_scope(text, text, text) IS 'Returns the schedule row of a scope without a lock. Creates a missing scope as lock_or_create_scope does.';

CREATE OR REPLACE FUNCTION {schema}_internal.lock_scopes(job text, kind text, wanted text[])
RETURNS SETOF {schema}.schedules LANGUAGE plpgsql AS $$
DECLARE
    scope text;
BEGIN
    IF cardinality(wanted) > 1 AND NOT EXISTS (
            SELECT FROM unnest(wanted) u(id) WHERE NOT EXISTS (
                SELECT FROM {schema}.schedules s
                WHERE (s.job_name, s.scope_kind, s.scope_id) = (job, kind, u.id))) THEN
        RETURN QUERY
            SELECT s.* FROM unnest(wanted) u(id)
            JOIN {schema}.schedules s ON (s.job_name, s.scope_kind, s.scope_id) = (job, kind, u.id)
            ORDER BY s.scope_id FOR NO KEY UPDATE OF s;
        RETURN;
    END IF;
    -- Jobs come before schedules in the lock order.
    PERFORM FROM {schema}.jobs j WHERE j.name = job FOR SHARE;
    -- One by one, so that a new row is locked in its place in the key order, too.
    FOREACH scope IN ARRAY wanted LOOP
        RETURN NEXT {schema}_internal.lock_or_create_scope(job, kind, scope);
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_scopes(text, text, text[]) IS 'Locks the schedule rows of these scopes, given once each and in key order, and returns them in that order. Creates a missing scope as lock_or_create_scope does.';

CREATE OR REPLACE FUNCTION {schema}_internal.give_up_superseded(scope {schema}.schedules) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH held AS MATERIALIZED (
        SELECT f.plan_time, p.id FROM {schema}.executions f
        CROSS JOIN LATERAL (
            SELECT q.id FROM {schema}.executions q
            WHERE (q.job_name, q.scope_kind, q.scope_id, q.enqueue_key)
                = (f.job_name, f.scope_kind, f.scope_id, f.enqueue_key)
              AND q.next_attempt_at IS NOT NULL AND q.status = 'PENDING' AND q.plan_time > f.plan_time
            LIMIT 1) p
        WHERE (f.job_name, f.scope_kind, f.scope_id)
            = (scope.job_name, scope.scope_kind, scope.scope_id)
          AND f.enqueue_key IS NOT NULL AND f.next_attempt_at IS NOT NULL AND f.status = 'FAILED'
        ORDER BY f.plan_time FOR NO KEY UPDATE OF f SKIP LOCKED
    )
    UPDATE {schema}.executions e
    SET next_attempt_at = NULL, updated_at = {schema}.db_clock(), changed_xact = pg_current_xact_id(),
        error_msg = left(concat_ws('; ', e.error_msg,
            format('not retried: execution %s of the same key took its place', h.id)), 4000)
    FROM held h
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
        = (scope.job_name, scope.scope_kind, scope.scope_id, h.plan_time)
      AND e.status = 'FAILED' AND e.next_attempt_at IS NOT NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.give_up_superseded({schema}.schedules) IS 'Ends the retries of FAILED executions of this scope while a newer execution of their key is PENDING, because an old payload must not run after a new one. The caller holds the lock of the schedule row.';

CREATE OR REPLACE FUNCTION {schema}_internal.has_uncovered_input(scope {schema}.schedules) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(scope.input_watermark > scope.success_watermark,
                    scope.input_watermark IS NOT NULL)
$$;
COMMENT ON FUNCTION {schema}_internal.has_uncovered_input({schema}.schedules) IS 'Returns whether the scope has input beyond success_watermark, that is, whether it is dirty.';

-- A scope that a success left dirty runs again: at once after progress, otherwise after the first backoff, so
-- that a worker that covers nothing does not busy-loop. Not beside a RUNNING execution or a waiting one with a
-- key, which will cover it. Not after a failure or a cancellation, which waits for new input or a person.
CREATE OR REPLACE FUNCTION {schema}_internal.enqueue_dirty_scope(scope {schema}.schedules) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    definition {schema}.jobs;
    newest     {schema}.executions;
    furthest   bigint[];
    at         timestamptz;
    due        timestamptz;
    made       bigint;
BEGIN
    SELECT e.* INTO newest FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (scope.job_name, scope.scope_kind, scope.scope_id)
    ORDER BY e.plan_time DESC LIMIT 1;
    IF newest.status IS DISTINCT FROM 'SUCCESS' OR EXISTS (
            SELECT FROM {schema}.executions e
            WHERE (e.job_name, e.scope_kind, e.scope_id)
                = (scope.job_name, scope.scope_kind, scope.scope_id) AND e.status = 'RUNNING')
       OR EXISTS (
            SELECT FROM {schema}.executions e
            WHERE (e.job_name, e.scope_kind, e.scope_id)
                = (scope.job_name, scope.scope_kind, scope.scope_id)
              AND e.next_attempt_at IS NOT NULL AND e.enqueue_key IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = scope.job_name AND j.retired_at IS NULL;
    IF NOT FOUND OR (scope.retired_at IS NOT NULL AND scope.returned_at IS NULL) THEN
        RETURN NULL;
    END IF;
    furthest := ARRAY(
        SELECT e.watermark FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id)
            = (scope.job_name, scope.scope_kind, scope.scope_id)
          AND e.status = 'SUCCESS' AND e.watermark IS NOT NULL
        ORDER BY e.watermark DESC LIMIT 2);
    at := {schema}.db_clock();
    due := at;
    IF newest.watermark IS NULL OR newest.watermark < furthest[1] OR furthest[2] = furthest[1] THEN
        due := greatest(at, newest.finished_at + definition.retry_backoff[1]);
    END IF;
    made := {schema}_internal.create_enqueued(
        definition, scope, {schema}_internal.free_plan_time(scope, at), due,
        CASE newest.trigger WHEN 'enqueue' THEN coalesce(newest.enqueue_key, '') ELSE '' END,
        CASE newest.trigger WHEN 'enqueue' THEN newest.payload END,
        scope.input_watermark, newest.group_id, newest.requested_by);
    PERFORM pg_notify('{schema}', 'pending');
    RETURN made;
END $$;
COMMENT ON FUNCTION {schema}_internal.enqueue_dirty_scope({schema}.schedules) IS 'Creates a PENDING execution for a dirty scope whose newest execution is a SUCCESS, and returns its id. It is due now if that success covered more than any before it, otherwise after the first backoff of the job. NULL: an execution runs or waits, or the newest one failed. The caller holds the lock of the schedule row.';

CREATE OR REPLACE FUNCTION {schema}_internal.settle_input(scope {schema}.schedules)
RETURNS {schema}.schedules LANGUAGE plpgsql AS $$
DECLARE
    settled {schema}.schedules := scope;
BEGIN
    settled.success_watermark := {schema}_internal.covered_watermark(scope);
    IF settled.success_watermark IS DISTINCT FROM scope.success_watermark THEN
        UPDATE {schema}.schedules s SET success_watermark = settled.success_watermark
        WHERE (s.job_name, s.scope_kind, s.scope_id)
            = (scope.job_name, scope.scope_kind, scope.scope_id);
    END IF;
    PERFORM {schema}_internal.give_up_superseded(scope);
    RETURN settled;
END $$;
COMMENT ON FUNCTION {schema}_internal.settle_input({schema}.schedules) IS 'Records what successes have covered, gives up retries whose key has a newer execution, and returns the updated row. The caller holds its lock.';

CREATE OR REPLACE FUNCTION {schema}_internal.settle_inputs(of_jobs text[], of_kinds text[], of_scopes text[])
RETURNS integer LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held  {schema}.schedules;
    count integer := 0;
BEGIN
    FOR held IN
        SELECT s.* FROM (SELECT DISTINCT * FROM unnest(of_jobs, of_kinds, of_scopes)) u(job, kind, scope)
        JOIN {schema}.schedules s ON (s.job_name, s.scope_kind, s.scope_id) = (u.job, u.kind, u.scope)
        ORDER BY s.job_name, s.scope_kind, s.scope_id FOR NO KEY UPDATE OF s SKIP LOCKED
    LOOP
        held := {schema}_internal.settle_input(held);
        IF {schema}_internal.has_uncovered_input(held) THEN
            BEGIN
                count := count + ({schema}_internal.enqueue_dirty_scope(held) IS NOT NULL)::integer;
            EXCEPTION WHEN object_not_in_prerequisite_state OR data_exception
                           OR integrity_constraint_violation THEN
                RAISE WARNING 'job %: %/% is dirty and could not be made to run again: %',
                    held.job_name, held.scope_kind, held.scope_id, SQLERRM;
            END;
        END IF;
    END LOOP;
    RETURN count;
END $$;
COMMENT ON FUNCTION {schema}_internal.settle_inputs(text[], text[], text[]) IS 'Settles the input of these scopes after executions ended: records success_watermark, gives up superseded retries, and enqueues what is still dirty after a success. Returns how many executions it created. Skips locked schedules, so it may follow a finish in the same transaction; the holder of the lock or the sweeper settles those.';

CREATE OR REPLACE FUNCTION {schema}_internal.settle_left_behind() RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
    SELECT coalesce({schema}_internal.settle_inputs(array_agg(d.job_name), array_agg(d.scope_kind),
                                           array_agg(d.scope_id)), 0)
    FROM (SELECT s.job_name, s.scope_kind, s.scope_id FROM {schema}.schedules s
          WHERE coalesce(s.input_watermark > s.success_watermark, s.input_watermark IS NOT NULL)
          UNION
          SELECT f.job_name, f.scope_kind, f.scope_id FROM {schema}.executions f
          WHERE f.next_attempt_at IS NOT NULL AND f.enqueue_key IS NOT NULL AND f.status = 'FAILED'
          LIMIT 10000) d
$$;
COMMENT ON FUNCTION {schema}_internal.settle_left_behind() IS 'Calls settle_inputs for every dirty scope and every keyed retry, which a crash may have left. Returns how many executions it created.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_enqueue(job text, key text, group_id uuid, other bigint, of_group uuid)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF length(key) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'job %: key % is not a text of 1 to 200 characters', job, quote_literal(left(key, 40))
            USING HINT = 'Leave it out: the push is then never merged with another.',
                  ERRCODE = 'invalid_parameter_value';
    ELSIF group_id <> of_group THEN
        RAISE EXCEPTION 'job %: execution % is PENDING with this key in another group', job, other
            USING HINT = 'One execution cannot be followed in two groups; leave key or group_id out.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_enqueue(text, text, uuid, bigint, uuid) IS 'Raises if this key or this group cannot be enqueued.';

-- Without enqueued_by.
DROP FUNCTION IF EXISTS {schema}_internal.merge_enqueued({schema}.schedules, text, bigint, jsonb, uuid, text);
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

CREATE OR REPLACE FUNCTION {schema}_internal.covering_execution(scope {schema}.schedules) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (SELECT e.id FROM {schema}.executions e
         WHERE (e.job_name, e.scope_kind, e.scope_id)
             = (scope.job_name, scope.scope_kind, scope.scope_id)
           AND e.status = 'RUNNING' AND e.watermark >= scope.input_watermark
           AND e.cancel_requested_at IS NULL LIMIT 1),
        (SELECT e.id FROM {schema}.executions e
         WHERE (e.job_name, e.scope_kind, e.scope_id)
             = (scope.job_name, scope.scope_kind, scope.scope_id)
           AND e.next_attempt_at IS NOT NULL AND e.enqueue_key = '' ORDER BY e.plan_time DESC LIMIT 1));
END $$;
COMMENT ON FUNCTION {schema}_internal.covering_execution({schema}.schedules) IS 'Returns the execution that covers all input of this scope once it succeeds: one that is RUNNING since the newest input, or one that waits.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_due_at(
    job text, due_at timestamptz, key text, watermark bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF key IS NOT NULL OR watermark IS NOT NULL THEN
        RAISE EXCEPTION 'job %: due_at % is given with a %', job, due_at,
                CASE WHEN key IS NOT NULL THEN 'key' ELSE 'watermark' END
            USING HINT = 'What is merged is due now; leave due_at out, or key and watermark.',
                  ERRCODE = 'invalid_parameter_value';
    ELSIF NOT isfinite(due_at) THEN
        RAISE EXCEPTION 'job %: due_at % is not an instant', job, due_at
            USING HINT = 'Leave it out to enqueue for now.', ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_due_at(text, timestamptz, text, bigint) IS 'Raises if this work cannot wait until due_at.';

DROP FUNCTION IF EXISTS {schema}_internal.enqueue_messages({schema}.jobs, {schema}.schedules[], text[], jsonb[], uuid, text);
DROP FUNCTION IF EXISTS {schema}_internal.free_plan_times({schema}.schedules, timestamptz, integer);
-- Without due_at, and without traceparent. With both functions a call would be ambiguous; here, no caller finds
-- neither.
DROP FUNCTION IF EXISTS {schema}.enqueue(text, text, bigint, jsonb, text, text, uuid, text);
DROP FUNCTION IF EXISTS {schema}.enqueue(text, text, bigint, jsonb, text, text, uuid, text, timestamptz);
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
        IF definition.retired_at IS NOT NULL OR (scope.retired_at IS NOT NULL AND scope.returned_at IS NULL) THEN
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
    IF definition.retired_at IS NOT NULL OR (scope.retired_at IS NOT NULL AND scope.returned_at IS NULL) THEN
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

CREATE OR REPLACE FUNCTION {schema}_internal.check_items(
    job text, payloads jsonb[], keys text[], watermarks bigint[], scope_ids text[])
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    lengths integer[] := array_remove(ARRAY[cardinality(payloads), cardinality(keys),
                                            cardinality(watermarks), cardinality(scope_ids)], NULL);
BEGIN
    IF lengths[1] IS NULL OR lengths[1] <> ANY (lengths) THEN
        RAISE EXCEPTION 'job %: payloads, keys, watermarks and scope_ids have % elements', job,
                coalesce(nullif(array_to_string(lengths, ' and '), ''), 'no')
            USING HINT = 'Pass one of these arrays or more, each with one element for each item.',
                  ERRCODE = 'invalid_parameter_value';
    ELSIF lengths[1] > 100000 THEN
        RAISE EXCEPTION 'job %: % items are too many for one call; the limit is 100000', job, lengths[1]
            USING HINT = 'Call it several times; one transaction may hold all the calls.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN lengths[1];
END $$;
COMMENT ON FUNCTION {schema}_internal.check_items(text, jsonb[], text[], bigint[], text[]) IS 'Returns the number of items. Raises unless the arrays have one length, of at most 100,000.';

-- Without enqueued_by.
DROP FUNCTION IF EXISTS {schema}_internal.create_messages({schema}.jobs, text, text[], jsonb[], uuid, text);
CREATE OR REPLACE FUNCTION {schema}_internal.create_messages(
    definition {schema}.jobs, kind text, scope_ids text[], payloads jsonb[], of_group uuid, requester text,
    enqueued_by text)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    microsecond constant interval := '1 microsecond';
    count       constant integer := cardinality(scope_ids);
    now_        constant timestamptz := {schema}.db_clock();
    ids         constant bigint[] := ARRAY(SELECT nextval('{schema}.execution_id') FROM generate_series(1, count));
    -- Each message is due a microsecond after the one before it, and the last one now: they start in their order.
    last        timestamptz := now_ - count * microsecond;
    created     integer;
    missing     integer := count;
BEGIN
    PERFORM {schema}_internal.check_json(definition.name, 'payload', u.payload) FROM unnest(payloads) u(payload)
    WHERE {schema}_internal.json_problem(u.payload) IS NOT NULL;
    LOOP
        PERFORM {schema}_internal.check_partition(definition.name, last - interval '1 second');
        PERFORM {schema}_internal.check_partition(definition.name, last);
        INSERT INTO {schema}.executions
            (job_name, scope_kind, scope_id, plan_time, id, status, trigger, revision, queue, due_at,
             next_attempt_at, payload, group_id, attempt, max_attempts, requested_by, traceparent)
        SELECT definition.name, kind, m.scope_id, {schema}_internal.message_plan_time(m.id, last), m.id, 'PENDING',
               'enqueue', definition.revision, definition.queue, now_ - (count - m.n) * microsecond,
               now_ - (count - m.n) * microsecond, coalesce(m.payload, definition.payload), of_group, 0,
               definition.max_attempts, requester, enqueued_by
        FROM unnest(ids, scope_ids, payloads) WITH ORDINALITY m(id, scope_id, payload, n)
        -- Of the second round on. The first one creates all, unless the clock was set back.
        WHERE missing = count OR NOT EXISTS (SELECT FROM {schema}.executions e WHERE e.id = m.id)
        ON CONFLICT (job_name, scope_kind, scope_id, plan_time) DO NOTHING;
        GET DIAGNOSTICS created = ROW_COUNT;
        missing := missing - created;
        EXIT WHEN missing = 0;
        last := last - interval '1 second';
    END LOOP;
    RETURN ids;
END $$;
COMMENT ON FUNCTION {schema}_internal.create_messages({schema}.jobs, text, text[], jsonb[], uuid, text, text) IS 'Creates a PENDING execution for each of these payloads as create_message does, due now, and returns their ids. It needs no lock.';

-- Without traceparent, see enqueue.
DROP FUNCTION IF EXISTS {schema}.enqueue_many(text, jsonb[], text[], bigint[], text[], text, uuid, text);
CREATE OR REPLACE FUNCTION {schema}.enqueue_many(
    job text, payloads jsonb[] DEFAULT NULL, keys text[] DEFAULT NULL, watermarks bigint[] DEFAULT NULL,
    scope_ids text[] DEFAULT NULL, scope_kind text DEFAULT NULL, group_id uuid DEFAULT NULL,
    requested_by text DEFAULT NULL, traceparent text DEFAULT NULL)
RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    count      constant integer := {schema}_internal.check_items(job, payloads, keys, watermarks, scope_ids);
    requester  constant text := coalesce(requested_by, session_user);
    of_scopes  text[] := coalesce(scope_ids, array_fill('global'::text, ARRAY[count]));
    definition {schema}.jobs;
    kind       text;
    scopes     {schema}.schedules[];
    scope      {schema}.schedules;
    item       record;
    made       bigint;
    ids        bigint[] := array_fill(NULL::bigint, ARRAY[count]);
BEGIN
    IF traceparent IS NOT NULL THEN
        PERFORM {schema}_internal.check_traceparent(job, traceparent);
    END IF;
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = job;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    ELSIF count = 0 THEN
        RETURN ids;
    END IF;
    kind := coalesce(enqueue_many.scope_kind, definition.scope_kind);
    IF keys IS NULL AND watermarks IS NULL THEN
        FOREACH scope IN ARRAY ARRAY(
                SELECT {schema}_internal.find_or_create_scope(job, kind, u.id)
                FROM (SELECT DISTINCT o.id COLLATE "C" AS id FROM unnest(of_scopes) o(id) ORDER BY 1) u) LOOP
            IF definition.retired_at IS NOT NULL OR (scope.retired_at IS NOT NULL AND scope.returned_at IS NULL) THEN
                PERFORM {schema}_internal.check_trigger(definition, scope, force => true);
            END IF;
        END LOOP;
        ids := {schema}_internal.create_messages(definition, kind, of_scopes, payloads, group_id, requester,
                                                      traceparent);
        PERFORM pg_notify('{schema}', 'pending');
        RETURN ids;
    END IF;
    scopes := ARRAY(SELECT s FROM {schema}_internal.lock_scopes(
        job, kind, ARRAY(SELECT DISTINCT u.id COLLATE "C" FROM unnest(of_scopes) u(id) ORDER BY 1)) s);
    -- Again under the locks: no edit commits from here on.
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = job;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    END IF;
    FOREACH scope IN ARRAY scopes LOOP
        IF definition.retired_at IS NOT NULL OR (scope.retired_at IS NOT NULL AND scope.returned_at IS NULL) THEN
            PERFORM {schema}_internal.check_trigger(definition, scope, force => true);
        END IF;
    END LOOP;
    FOR item IN
        SELECT array_agg(u.n) AS places, u.scope_id, u.key, max(u.watermark) AS watermark,
               (array_agg(u.payload ORDER BY u.n DESC) FILTER (WHERE u.payload IS NOT NULL))[1] AS payload
        FROM unnest(of_scopes, keys, payloads, watermarks) WITH ORDINALITY u(scope_id, key, payload, watermark, n)
        GROUP BY u.scope_id, u.key, CASE WHEN u.key IS NULL AND NOT (u.payload IS NULL AND u.watermark IS NOT NULL)
                                         THEN u.n END
        ORDER BY min(u.n)
    LOOP
        made := {schema}.enqueue(job, item.scope_id, item.watermark, item.payload, item.key, kind,
                                 group_id, requester, traceparent => traceparent);
        FOR place IN 1 .. cardinality(item.places) LOOP
            ids[item.places[place]] := made;
        END LOOP;
    END LOOP;
    RETURN ids;
END $$;
COMMENT ON FUNCTION {schema}.enqueue_many(text, jsonb[], text[], bigint[], text[], text, uuid, text, text) IS 'Enqueues many items of one job in one transaction, as enqueue does one by one, and returns an id for each item, in their order. The item n has the elements n of these arrays; an array that is left out is NULL for every item (scope_ids: the scope of a global job). Items of one scope and key are merged first, and so are watermarks alone of one scope: the greatest watermark, the newest payload that is not NULL. Their ids are the same. traceparent: the span that enqueues all of them, see enqueue. At most 100,000 items. Without keys and watermarks, a call for existing scopes takes no lock. Otherwise it locks the schedule rows of all scopes in key order, and waits for them (lock_timeout).';

CREATE OR REPLACE FUNCTION {schema}.is_dirty(
    job text, scope_id text DEFAULT 'global', scope_kind text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    scope {schema}.schedules;
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.jobs j WHERE j.name = is_dirty.job) THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    END IF;
    SELECT s.* INTO scope FROM {schema}.schedules s JOIN {schema}.jobs j ON j.name = s.job_name
    WHERE s.job_name = is_dirty.job AND s.scope_id = is_dirty.scope_id
      AND s.scope_kind = coalesce(is_dirty.scope_kind, j.scope_kind);
    scope.success_watermark := {schema}_internal.covered_watermark(scope);
    RETURN {schema}_internal.has_uncovered_input(scope);
END $$;
COMMENT ON FUNCTION {schema}.is_dirty(text, text, text) IS 'Returns whether this scope has input that no success covers yet. Returns false for a scope that does not exist.';

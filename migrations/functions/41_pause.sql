-- Operator functions: pause and resume jobs and queues. Lock: the row of the queue or the job, waiting; the
-- triggers on jobs then lock its schedules and create the revision.

CREATE OR REPLACE FUNCTION {schema}_internal.raise_unknown_job(job text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job ''%'' does not exist', job
        USING HINT = 'To list the jobs, run SELECT DISTINCT job_name FROM {schema}.job_status.',
              ERRCODE = 'no_data_found';
END $$;
COMMENT ON FUNCTION {schema}_internal.raise_unknown_job(text) IS 'Raises that this job does not exist.';

CREATE OR REPLACE FUNCTION {schema}_internal.raise_unknown_scope(job text, scope_kind text, scope_id text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job ''%'' has no scope %/%', job, scope_kind, scope_id
        USING HINT = format('To list its scopes, run SELECT scope_kind, scope_id FROM {schema}.job_status WHERE job_name = %L.', job),
              ERRCODE = 'no_data_found';
END $$;
COMMENT ON FUNCTION {schema}_internal.raise_unknown_scope(text, text, text) IS 'Raises that this job does not have this scope.';

CREATE OR REPLACE FUNCTION {schema}_internal.lock_job(job text) RETURNS {schema}.jobs LANGUAGE plpgsql AS $$
DECLARE
    held {schema}.jobs;
BEGIN
    SELECT j.* INTO held FROM {schema}.jobs j WHERE j.name = job FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    END IF;
    RETURN held;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_job(text) IS 'Locks and returns the row of a job. Raises if the job does not exist.';

CREATE OR REPLACE FUNCTION {schema}.pause(
    job text, reason text DEFAULT NULL, until timestamptz DEFAULT NULL, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    requester  text := coalesce(requested_by, session_user);
    definition {schema}.jobs := {schema}_internal.lock_job(job);
    at         timestamptz := {schema}.db_clock();
    in_force   boolean := definition.paused_at IS NOT NULL AND coalesce(definition.paused_until > at, true);
    began      boolean;
    made       bigint;
BEGIN
    IF until <= at THEN
        RAISE EXCEPTION 'job %: until % is in the past; the database''s clock is at %', job, until, at
            USING HINT = 'Give a future instant, or none to pause the job until it is resumed.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    IF until <> 'infinity' AND until > at + interval '36525 days' THEN
        RAISE EXCEPTION 'job %: until % is more than 100 years ahead', job, until
            USING HINT = 'Give an earlier instant, or none to pause the job until it is resumed.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    IF definition.retired_at IS NOT NULL THEN
        RAISE EXCEPTION 'job %: it is retired (since %)', job, definition.retired_at
            USING HINT = 'A retired job does not run, so it cannot be paused.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    began := {schema}_internal.begin_action();
    UPDATE {schema}.jobs j
    SET paused_at = CASE WHEN in_force THEN j.paused_at ELSE at END, paused_by = requester,
        paused_reason = reason, paused_until = until, edited_by = requester
    WHERE j.name = job
    RETURNING nullif(j.revision, definition.revision) INTO made;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('pause', 'job', job, requester, 'done', job, made,
        arguments => jsonb_build_object('until', until), reason => reason);
    RETURN NOT in_force;
END $$;
COMMENT ON FUNCTION {schema}.pause(text, text, timestamptz, text) IS 'Pauses a job until it is resumed, or until the given instant. RUNNING executions finish. No execution starts, except by a claim that is in progress. A second call replaces reason and until. Returns false if the job was paused already.';

CREATE OR REPLACE FUNCTION {schema}.resume(job text, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    definition {schema}.jobs := {schema}_internal.lock_job(job);
    began      boolean := {schema}_internal.begin_action();
    made       bigint;
BEGIN
    UPDATE {schema}.jobs j
    SET paused_at = NULL, edited_by = coalesce(requested_by, session_user)
    WHERE j.name = job AND j.paused_at IS NOT NULL
    RETURNING j.revision INTO made;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('resume', 'job', job, requested_by,
        CASE WHEN made IS NULL THEN 'unchanged' ELSE 'done' END, job, made);
    RETURN made IS NOT NULL;
END $$;
COMMENT ON FUNCTION {schema}.resume(text, text) IS 'Resumes a job. plan_times that were due during the pause are skipped. Returns false if the job was not paused.';

CREATE OR REPLACE FUNCTION {schema}.retire(job text, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    definition {schema}.jobs := {schema}_internal.lock_job(job);
    began      boolean := {schema}_internal.begin_action();
    made       bigint;
BEGIN
    UPDATE {schema}.jobs j
    SET retired_at = {schema}.db_clock(), edited_by = coalesce(requested_by, session_user)
    WHERE j.name = job AND j.retired_at IS NULL
    RETURNING j.revision INTO made;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('retire', 'job', job, requested_by,
        CASE WHEN made IS NULL THEN 'unchanged' ELSE 'done' END, job, made);
    RETURN made IS NOT NULL;
END $$;
COMMENT ON FUNCTION {schema}.retire(text, text) IS 'Retires a job: it plans nothing more, and its waiting executions are CANCELLED. RUNNING executions finish, and the history stays. Returns false if the job was retired already.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_queue(queue text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- A pause of a misspelt queue would have no effect and no error.
    IF NOT EXISTS (SELECT FROM {schema}.queues q WHERE q.name = check_queue.queue)
       AND NOT EXISTS (SELECT FROM {schema}.jobs j WHERE j.queue = check_queue.queue)
       AND NOT EXISTS (SELECT FROM {schema}.runners r WHERE check_queue.queue = ANY (r.queues)
                       AND r.stale_after > {schema}.db_clock() - interval '1 day') THEN
        RAISE EXCEPTION 'queue %: no job and no runner uses it', queue
            USING HINT = 'To list the queues, run SELECT name FROM {schema}.queue_status.',
                  ERRCODE = 'no_data_found';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_queue(text) IS 'Raises unless a job, a runner or the table queues has this queue.';

CREATE OR REPLACE FUNCTION {schema}.pause_queue(
    queue text, reason text DEFAULT NULL, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held  {schema}.queues;
    began boolean;
BEGIN
    PERFORM {schema}_internal.check_queue(queue);
    began := {schema}_internal.begin_action();
    INSERT INTO {schema}.queues (name) VALUES (queue) ON CONFLICT DO NOTHING;
    SELECT q.* INTO held FROM {schema}.queues q WHERE q.name = pause_queue.queue FOR NO KEY UPDATE;
    UPDATE {schema}.queues q
    SET paused_at = coalesce(q.paused_at, {schema}.db_clock()), paused_reason = reason,
        paused_by = coalesce(requested_by, session_user)
    WHERE q.name = pause_queue.queue;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('pause_queue', 'queue', queue, requested_by, 'done', reason => reason);
    RETURN held.paused_at IS NULL;
END $$;
COMMENT ON FUNCTION {schema}.pause_queue(text, text, text) IS 'Pauses a queue until it is resumed. RUNNING executions finish, and nothing new starts. A second call replaces the reason. Returns false if the queue was paused already.';

CREATE OR REPLACE FUNCTION {schema}.resume_queue(queue text, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began   boolean;
    resumed boolean;
BEGIN
    PERFORM {schema}_internal.check_queue(queue);
    began := {schema}_internal.begin_action();
    UPDATE {schema}.queues q SET paused_at = NULL, paused_by = NULL, paused_reason = NULL
    WHERE q.name = resume_queue.queue AND q.paused_at IS NOT NULL;
    resumed := FOUND;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('resume_queue', 'queue', queue, requested_by,
        CASE WHEN resumed THEN 'done' ELSE 'unchanged' END);
    IF resumed THEN
        PERFORM pg_notify('{schema}', 'queues');
    END IF;
    RETURN resumed;
END $$;
COMMENT ON FUNCTION {schema}.resume_queue(text, text) IS 'Resumes a queue. The catch_up of each job decides about plan_times that were due during the pause. Returns false if the queue was not paused.';

-- Operator functions: pause and resume jobs and queues. Lock: the row of the queue or the job, waiting; the
-- triggers on jobs then lock its schedules and create the revision.

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
        RAISE EXCEPTION 'job %: until % is in the past; the database''s clock is at %',
                job, {schema}_internal.utc_text(until), {schema}_internal.utc_text(at)
            USING HINT = 'Give a future instant, or none to pause the job until it is resumed.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    IF until <> 'infinity' AND until > at + interval '36525 days' THEN
        RAISE EXCEPTION 'job %: until % is more than 100 years ahead', job, {schema}_internal.utc_text(until)
            USING HINT = 'Give an earlier instant, or none to pause the job until it is resumed.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    IF definition.retired_at IS NOT NULL THEN
        RAISE EXCEPTION 'job %: it is retired (since %)', job, {schema}_internal.utc_text(definition.retired_at)
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

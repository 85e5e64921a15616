CREATE OR REPLACE FUNCTION {schema}.resume(job text, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    definition {schema}.jobs := {schema}_internal.lock_job(job);
    began      boolean := {schema}_internal.begin_action();
    made       bigint;
    wide       {schema}.pauses;
BEGIN
    SELECT p.* INTO wide FROM {schema}.pauses p
    WHERE p.begun_at IS NOT NULL AND p.ended_at IS NULL AND coalesce(p.until_at > {schema}.db_clock(), true)
      AND {schema}_internal.is_wide(p) AND {schema}_internal.pause_covers(p, definition)
    ORDER BY p.until_at DESC NULLS FIRST, p.id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'job %: pause % holds it, which covers other jobs as well', job, wide.id
            USING DETAIL = coalesce(wide.reason, 'No reason was given.'),
                  HINT = format('To end that pause for all of its jobs, use {schema}.end_pause(%s).', wide.id),
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    UPDATE {schema}.jobs j
    SET paused_at = NULL, edited_by = coalesce(requested_by, session_user)
    WHERE j.name = job AND j.paused_at IS NOT NULL
    RETURNING j.revision INTO made;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('resume', 'job', job, requested_by,
        CASE WHEN made IS NULL THEN 'unchanged' ELSE 'done' END, job, made);
    RETURN made IS NOT NULL;
END $$;
COMMENT ON FUNCTION {schema}.resume(text, text) IS 'Resumes a job. plan_times that were due during the pause are skipped. Returns false if the job was not paused. Raises if a pause of several jobs holds it; end_pause ends that pause.';

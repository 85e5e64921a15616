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

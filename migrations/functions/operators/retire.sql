CREATE OR REPLACE FUNCTION {schema}.retire(job text, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began boolean := {schema}_internal.begin_action();
    made  bigint;
BEGIN
    PERFORM {schema}_internal.order_edits();
    PERFORM {schema}_internal.lock_job(job);
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

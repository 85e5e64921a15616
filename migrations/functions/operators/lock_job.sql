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

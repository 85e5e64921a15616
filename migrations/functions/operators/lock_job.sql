CREATE OR REPLACE FUNCTION {schema}_internal.lock_job(job text) RETURNS {schema}.jobs LANGUAGE plpgsql AS $$
DECLARE
    held {schema}.jobs;
BEGIN
    -- Before the row: set_calendar has the table first, and then waits for its rows.
    LOCK TABLE {schema}.jobs IN ROW EXCLUSIVE MODE;
    SELECT j.* INTO held FROM {schema}.jobs j WHERE j.name = job FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    END IF;
    RETURN held;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_job(text) IS 'Locks and returns the row of a job. Raises if the job does not exist.';

CREATE OR REPLACE FUNCTION {schema}_internal.record_spec_error(job text, message text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- The claim holds schedules, which come after jobs in the lock order, so it waits neither for the table, which
    -- set_calendar may have, nor for the row.
    LOCK TABLE {schema}.jobs IN ROW EXCLUSIVE MODE NOWAIT;
    UPDATE {schema}.jobs j
    SET spec_error = 'the database refuses a value of this job: ' || message
    WHERE j.name = (SELECT n.name FROM {schema}.jobs n WHERE n.name = record_spec_error.job
                    FOR NO KEY UPDATE SKIP LOCKED);
EXCEPTION
    WHEN lock_not_available THEN NULL;  -- a later claim records it
END $$;
COMMENT ON FUNCTION {schema}_internal.record_spec_error(text, text) IS 'Records in spec_error of the job which value the database refused when an execution was claimed, unless another transaction has locked the job. The next edit clears it.';

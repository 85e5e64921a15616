CREATE OR REPLACE FUNCTION {schema}.withdraw_acceptance(acceptance bigint, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    done boolean;
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.acceptances a WHERE a.id = acceptance) THEN
        RAISE EXCEPTION 'acceptance % does not exist', acceptance
            USING HINT = 'To list the acceptances, run SELECT * FROM {schema}.accepted_violations.',
                  ERRCODE = 'no_data_found';
    END IF;
    UPDATE {schema}.acceptances a
    SET withdrawn_at = {schema}.db_clock(), withdrawn_by = coalesce(requested_by, session_user)
    WHERE a.id = acceptance AND a.withdrawn_at IS NULL;
    done := FOUND;
    PERFORM {schema}_internal.record_action('withdraw_acceptance', 'acceptance', acceptance::text, requested_by,
        CASE WHEN done THEN 'done' ELSE 'unchanged' END,
        (SELECT a.job_name FROM {schema}.acceptances a WHERE a.id = acceptance));
    RETURN done;
END $$;
COMMENT ON FUNCTION {schema}.withdraw_acceptance(bigint, text) IS 'Withdraws an acceptance: the violation counts again from now on. Returns false if the acceptance was withdrawn already.';

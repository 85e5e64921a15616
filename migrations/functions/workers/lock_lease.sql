CREATE OR REPLACE FUNCTION {schema}_internal.lease_refusal(execution_id bigint, token uuid) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    held {schema}.executions;
BEGIN
    SELECT e.* INTO held FROM {schema}.executions e WHERE e.id = execution_id;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_execution(execution_id);
    END IF;
    -- The sweeper keeps the token, but the worker did not write that end.
    IF held.lease_token = token AND held.status <> 'RUNNING'
       AND held.error_code IS DISTINCT FROM 'stale_timeout' THEN
        RETURN 'already_finished';
    END IF;
    RETURN 'lost';
END $$;
COMMENT ON FUNCTION {schema}_internal.lease_refusal(bigint, uuid) IS 'Returns why an execution is not held under this token: already_finished, or lost (stolen, swept or released). Raises if the execution does not exist.';

CREATE OR REPLACE FUNCTION {schema}_internal.lock_lease(execution_id bigint, token uuid)
RETURNS {schema}.executions LANGUAGE plpgsql AS $$
DECLARE
    held {schema}.executions;
BEGIN
    SELECT e.* INTO held FROM {schema}.executions e
    WHERE e.id = execution_id AND e.lease_token = token AND e.status = (SELECT 'RUNNING')
    FOR NO KEY UPDATE;
    RETURN held;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_lease(bigint, uuid) IS 'Locks and returns the execution that is RUNNING under this token; NULL: there is none. Waits for other writers of the row, which are short.';

CREATE OR REPLACE FUNCTION {schema}.assert_lease(execution_id bigint, token uuid)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM {schema}.executions e
    WHERE e.id = execution_id AND e.lease_token = token AND e.status = (SELECT 'RUNNING')
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'execution %: its lease is lost', execution_id
            USING DETAIL = 'It is not RUNNING under this token: another runner holds it, or it has ended.',
                  HINT = 'Roll this transaction back; its writes must not be committed.',
                  ERRCODE = 'CL001';
    END IF;
    -- The transaction must not outlive its client. With these settings the server detects a lost host after
    -- about ten seconds instead of two hours, and a lost client also while a statement runs, if the kernel
    -- supports it. (No tcp_user_timeout: it would end clients that read slowly.)
    PERFORM set_config('tcp_keepalives_idle', '5', true), set_config('tcp_keepalives_interval', '2', true),
        set_config('tcp_keepalives_count', '3', true),
        set_config('client_connection_check_interval',
                   CASE WHEN version() LIKE '%linux%' THEN '2000'
                        ELSE current_setting('client_connection_check_interval') END, true);
END $$;
COMMENT ON FUNCTION {schema}.assert_lease(bigint, uuid) IS 'Raises CL001 unless the execution is RUNNING under this token. Until the transaction of the caller ends, the execution is not stolen or swept; heartbeats, its finish and requests to cancel still pass. The server ends the transaction soon after its client is gone.';

-- Tokens with which programs report the runs of observed jobs over HTTP. The web page receives the requests. It sends
-- only the SHA-256 of a token to the database. Lock order: the token, then as in observe.sql.

CREATE OR REPLACE FUNCTION {schema}.create_report_token(
    token_hash text, job text, scope_kind text DEFAULT 'global', scope_id text DEFAULT 'global', host text DEFAULT NULL,
    requested_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made bigint;
BEGIN
    IF token_hash IS NULL OR token_hash !~ '^[0-9a-f]{64}$' OR length(host) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'job %: the hash of the token is not a SHA-256, or the host does not have 1 to 200 characters', job
            USING HINT = 'Give the SHA-256 of a random token as 64 lower-case hexadecimal digits, and a host of 1 to 200 characters or none.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    -- A deletion of the job revokes the tokens that it sees. It waits for this transaction, or this one finds no job.
    PERFORM FROM {schema}.jobs j WHERE j.name = job FOR KEY SHARE;
    PERFORM {schema}_internal.lock_observed(job, scope_kind, scope_id);
    INSERT INTO {schema}.report_tokens AS t (token_hash, job_name, scope_kind, scope_id, host, created_at, created_by, minute_from)
    VALUES (create_report_token.token_hash, job, create_report_token.scope_kind, create_report_token.scope_id,
            create_report_token.host, {schema}.db_clock(), coalesce(requested_by, session_user), {schema}.db_clock())
    ON CONFLICT DO NOTHING
    RETURNING t.id INTO made;
    IF made IS NULL THEN
        RAISE EXCEPTION 'job %: this token exists already', job
            USING HINT = 'Create another random token. A token belongs to one job and scope.', ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM {schema}_internal.record_action('create_report_token', 'job', job, requested_by, 'done', job,
        arguments => jsonb_build_object('token_id', made, 'scope_kind', scope_kind, 'scope_id', scope_id, 'host', host));
    RETURN made;
END $$;
COMMENT ON FUNCTION {schema}.create_report_token(text, text, text, text, text, text) IS 'Creates a token with which programs report runs of this scope of an observed job to the web page, and returns its id. token_hash: SHA-256 of the token; the ledger does not store the token itself. host: the host that is recorded with each report.';

CREATE OR REPLACE FUNCTION {schema}.revoke_report_token(token_id bigint, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held {schema}.report_tokens;
BEGIN
    SELECT t.* INTO held FROM {schema}.report_tokens t WHERE t.id = token_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'report token % does not exist', token_id
            USING HINT = 'To list the tokens, run SELECT * FROM {schema}.report_token_status.', ERRCODE = 'no_data_found';
    END IF;
    UPDATE {schema}.report_tokens t
    SET revoked_at = {schema}.db_clock(), revoked_by = coalesce(requested_by, session_user)
    WHERE t.id = token_id AND t.revoked_at IS NULL;
    PERFORM {schema}_internal.record_action('revoke_report_token', 'job', held.job_name, requested_by,
        CASE WHEN held.revoked_at IS NULL THEN 'done' ELSE 'unchanged' END, held.job_name,
        arguments => jsonb_build_object('token_id', token_id));
    RETURN held.revoked_at IS NULL;
END $$;
COMMENT ON FUNCTION {schema}.revoke_report_token(bigint, text) IS 'Revokes a report token. After the COMMIT, the page refuses reports with it. Returns false if it was revoked already.';

CREATE OR REPLACE FUNCTION {schema}.report_token_job(token_hash text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.job_name FROM {schema}.report_tokens t
    WHERE t.token_hash = report_token_job.token_hash AND t.revoked_at IS NULL
$$;
COMMENT ON FUNCTION {schema}.report_token_job(text) IS 'Returns the job whose runs a report token reports, or NULL if the token does not exist, or was revoked. The web page calls this function before it receives a report. token_hash: SHA-256 of the token.';

-- The function returns a refusal instead of raising it, so that refused reports count for the limit as well.
CREATE OR REPLACE FUNCTION {schema}.report_by_token(
    token_hash text, has_ended boolean, run_key text DEFAULT NULL, exit_status integer DEFAULT NULL,
    error text DEFAULT NULL, output text DEFAULT NULL, OUT outcome text, OUT retry_after integer, OUT problem text,
    OUT remedy text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most_in_a_minute CONSTANT integer := 300;
    arrived CONSTANT timestamptz := {schema}.db_clock();
    held    {schema}.report_tokens;
    counted boolean;
BEGIN
    SELECT t.* INTO held FROM {schema}.report_tokens t
    WHERE t.token_hash = report_by_token.token_hash AND t.revoked_at IS NULL FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        outcome := 'unknown';
        RETURN;
    END IF;
    -- A report that took the lock first may have arrived later, and the clock may go back.
    counted := abs(extract(epoch FROM arrived - held.minute_from)) < 60;
    IF counted AND held.minute_count >= most_in_a_minute THEN
        outcome := 'limited';
        retry_after := least(60, ceil(extract(epoch FROM held.minute_from + interval '1 minute' - arrived)));
        RETURN;
    END IF;
    UPDATE {schema}.report_tokens t
    SET last_used_at = greatest(t.last_used_at, arrived),
        minute_from = CASE WHEN counted THEN t.minute_from ELSE arrived END,
        minute_count = CASE WHEN counted THEN t.minute_count + 1 ELSE 1 END
    WHERE t.id = held.id;
    BEGIN
        IF has_ended THEN
            PERFORM {schema}.observe_end(held.job_name, run_key, exit_status, error, output, ended_at => arrived,
                scope_kind => held.scope_kind, scope_id => held.scope_id, host => held.host, source => 'http');
        ELSE
            PERFORM {schema}.observe_start(held.job_name, run_key, arrived, held.scope_kind, held.scope_id, held.host, 'http');
        END IF;
        outcome := 'accepted';
    EXCEPTION WHEN lock_not_available THEN
        RAISE;  -- the next condition is that of its whole class
    WHEN no_data_found OR object_not_in_prerequisite_state OR invalid_parameter_value THEN
        outcome := 'refused';
        GET STACKED DIAGNOSTICS problem = MESSAGE_TEXT, remedy = PG_EXCEPTION_HINT;
    END;
END $$;
COMMENT ON FUNCTION {schema}.report_by_token(text, boolean, text, integer, text, text) IS 'Reports the start or the end of a run, with the time of the call. The web page calls this function. token_hash: SHA-256 of a report token. outcome: accepted; refused: observe_start() or observe_end() raised, problem states why, and remedy what to do; unknown: the token does not exist, or was revoked; limited: the token has 300 reports within a minute, and the next one is accepted after retry_after seconds.';

CREATE OR REPLACE FUNCTION {schema}_internal.raise_unknown_job(job text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job ''%'' does not exist', job
        USING HINT = 'To list the jobs, run SELECT DISTINCT job_name FROM {schema}.job_status.',
              ERRCODE = 'no_data_found';
END $$;
COMMENT ON FUNCTION {schema}_internal.raise_unknown_job(text) IS 'Raises that this job does not exist.';

CREATE OR REPLACE FUNCTION {schema}_internal.raise_unknown_scope(job text, scope_kind text, scope_id text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job ''%'' has no scope %/%', job, scope_kind, scope_id
        USING HINT = format('To list its scopes, run SELECT scope_kind, scope_id FROM {schema}.job_status WHERE job_name = %L.', job),
              ERRCODE = 'no_data_found';
END $$;
COMMENT ON FUNCTION {schema}_internal.raise_unknown_scope(text, text, text) IS 'Raises that this job does not have this scope.';

CREATE OR REPLACE FUNCTION {schema}_internal.raise_unknown_execution(execution_id bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'execution % does not exist', execution_id
        USING HINT = 'Its partition may have been dropped after retention. To list executions, read {schema}.ledger.',
              ERRCODE = 'no_data_found';
END $$;
COMMENT ON FUNCTION {schema}_internal.raise_unknown_execution(bigint) IS 'Raises that this execution does not exist.';

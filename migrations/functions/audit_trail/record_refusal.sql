-- A function that refuses raises, and its transaction is rolled back. Its caller records that afterwards.
CREATE OR REPLACE FUNCTION {schema}.record_refusal(
    verb text, arguments jsonb, error text, requested_by text DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    kind text := CASE WHEN verb IN ('cancel', 'cancel_many', 'retry', 'retry_many') THEN 'execution'
                      WHEN verb IN ('pause_queue', 'resume_queue', 'limit_queue', 'pause_all', 'resume_all') THEN 'queue'
                      WHEN verb IN ('pause_channel', 'resume_channel', 'test_channel') THEN 'channel'
                      WHEN verb = 'retry_delivery' THEN 'delivery'
                      WHEN verb IN ('accept_violation', 'withdraw_acceptance') THEN 'acceptance'
                      WHEN verb IN ('accept_database', 'refuse_database', 'set_retention') THEN 'ledger'
                      WHEN verb = 'rename_source' THEN 'source'
                      WHEN verb = 'set_calendar' THEN 'calendar'
                      WHEN verb = 'retire_host' THEN 'host'
                      ELSE 'job' END;
    id   bigint;
    kept jsonb;
    job  text;
BEGIN
    IF verb IS NULL OR verb <> ALL ({schema}_internal.operator_verbs()) THEN
        RAISE EXCEPTION 'record_refusal: verb % is not an operator function', coalesce(verb, 'NULL')
            USING HINT = 'Use one of ' || array_to_string({schema}_internal.operator_verbs(), ', ') || '.',
                  ERRCODE = 'invalid_parameter_value';
    ELSIF error IS NULL OR jsonb_typeof(arguments) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'record_refusal: error % or arguments % is missing, or arguments is not an object',
                left(error, 60), left(arguments::text, 60)
            USING HINT = 'Pass the text of the error, and the arguments of the call as a JSON object.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT coalesce(jsonb_object_agg(a.key, CASE jsonb_typeof(a.value)
               WHEN 'string' THEN to_jsonb(left(a.value #>> '{}', 200)) ELSE a.value END), '{}')
    INTO kept FROM jsonb_each(arguments) a
    WHERE a.key NOT IN ('payload', 'reason', 'requested_by', 'token_hash')
      AND jsonb_typeof(a.value) IN ('string', 'number', 'boolean');
    job := arguments ->> 'job';
    IF kind = 'execution' THEN
        id := (arguments ->> 'execution_id')::bigint;
        SELECT e.job_name INTO job FROM {schema}.executions e WHERE e.id = id;
    ELSIF verb = 'unskip' THEN
        SELECT p.job_name INTO job FROM {schema}.planned_skips p WHERE p.id = (arguments ->> 'skip_id')::bigint;
    END IF;
    PERFORM {schema}_internal.record_action(verb, kind, CASE kind WHEN 'job' THEN job
                WHEN 'execution' THEN id::text WHEN 'source' THEN kept ->> 'old'
                WHEN 'calendar' THEN kept ->> 'name' ELSE kept ->> kind END,
        requested_by, 'refused', job,
        arguments => kept - ARRAY['job', 'queue', 'execution_id', 'channel', 'delivery', 'acceptance', 'host', 'old', 'name'],
        reason => left(arguments ->> 'reason', 4000), error => error);
END $$;
COMMENT ON FUNCTION {schema}.record_refusal(text, jsonb, text, text) IS 'Records in the audit trail that an operator function refused a call. verb: the function. arguments: those of the call by name; payloads, hashes of tokens and lists are not recorded. error: its message. Call it in a new transaction, because the refusal has ended the other one.';

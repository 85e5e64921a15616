CREATE OR REPLACE FUNCTION {schema}.fail(
    id bigint, token uuid, code text, message text, result jsonb DEFAULT NULL,
    retry_after interval DEFAULT NULL, final boolean DEFAULT false)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    outcome {schema}.executions;
BEGIN
    -- These codes are reserved for an end that was not reported, and for an attempt that a drain stopped.
    IF coalesce(btrim(code), '') = '' OR length(code) > 100
       OR code IN ('stale_timeout', 'runner_crashed', 'shutdown', 'not_ended') THEN
        RAISE EXCEPTION 'execution %: code = %', fail.id, code
            USING HINT = 'code is a word of your own, 1 to 100 characters long; stale_timeout, runner_crashed, shutdown and not_ended are reserved.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    IF retry_after NOT BETWEEN interval '0' AND interval '36525 days' OR final IS NULL THEN
        RAISE EXCEPTION 'execution %: retry_after = %, final = %', fail.id, retry_after, final
            USING HINT = 'retry_after is 0 to 36525 days; NULL: the retry_backoff of the job. final is true or false.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    outcome.status := 'FAILED';
    outcome.error_code := btrim(code);
    outcome.error_msg := message;
    outcome.result := fail.result;
    RETURN {schema}_internal.end_attempt(fail.id, token, outcome, retry_after, final, false);
END $$;
COMMENT ON FUNCTION {schema}.fail(bigint, uuid, text, text, jsonb, interval, boolean) IS 'Ends an attempt as FAILED with code, message and an optional result. It is retried after retry_after or the retry_backoff of the job while attempts are left, unless final is true, or retry_on and never_retry_on of the job exclude the code. They never exclude retry_requested. After a requested cancel it is CANCELLED instead. ok: written. already_finished, lost: see finish.';

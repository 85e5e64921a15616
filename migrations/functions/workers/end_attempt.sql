CREATE OR REPLACE FUNCTION {schema}_internal.rearm_after(ended {schema}.executions) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- A replica does this in a transaction of its own; a function has only its caller's. So it misses a
    -- schedule that a claim has locked, perhaps in order to park it behind the execution that the claim still
    -- sees as RUNNING. The sweeper re-arms such a schedule within half a minute.
    PERFORM FROM {schema}_internal.rearm_unblocked(
        ARRAY[ended.job_name], ARRAY[ended.scope_kind], ARRAY[ended.scope_id], ARRAY[ended.queue]) r
    WHERE r.rearmed;
    IF FOUND THEN
        PERFORM pg_notify('{schema}', 'rearmed');
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.rearm_after({schema}.executions) IS 'Makes the schedules due that waited for the end of this execution, and notifies the replicas.';

-- rules/retry_filters.py has this rule for replicas, whose failures have more names than an error_code.
CREATE OR REPLACE FUNCTION {schema}_internal.retry_refusal(code text, retry_on text[], never_retry_on text[])
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'not retried: ' || CASE
        WHEN code = 'retry_requested' THEN NULL
        WHEN code = ANY (never_retry_on) THEN 'never_retry_on has ' || code
        WHEN cardinality(retry_on) > 0 AND (code = ANY (retry_on)) IS NOT TRUE THEN 'retry_on has no match' END
$$;
COMMENT ON FUNCTION {schema}_internal.retry_refusal(text, text[], text[]) IS 'Returns the line for error_msg that says why these filters prevent a retry after this error_code; NULL: they do not.';

CREATE OR REPLACE FUNCTION {schema}_internal.end_attempt(
    execution_id bigint, token uuid, outcome {schema}.executions, wait interval, final boolean,
    covers boolean)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    held      {schema}.executions;
    refusal   text;
    room      integer;
    has_input boolean;
    bytes     integer := octet_length(outcome.result::text);
    unstored  text := CASE
        WHEN bytes > 16384 THEN format('the result has %s bytes of JSON; at most 16384 are stored', bytes)
        ELSE 'the result ' || {schema}_internal.json_problem(outcome.result) || '; not stored' END;
BEGIN
    IF unstored IS NOT NULL THEN
        outcome.result := NULL;
        outcome.error_code := coalesce(outcome.error_code, CASE WHEN bytes > 16384
            THEN 'result_too_large' ELSE 'result_invalid' END);
        outcome.error_msg := concat_ws(E'\n', outcome.error_msg, unstored);
    END IF;
    held := {schema}_internal.lock_lease(execution_id, token);
    IF held.id IS NULL THEN
        RETURN {schema}_internal.lease_refusal(execution_id, token);
    END IF;
    IF NOT final AND held.attempt < held.max_attempts AND held.cancel_requested_at IS NULL THEN
        -- The job may be deleted.
        SELECT coalesce(wait, j.retry_backoff[least(held.attempt, cardinality(j.retry_backoff))]
                              * (1 + j.retry_jitter * random())),
               {schema}_internal.retry_refusal(outcome.error_code, j.retry_on, j.never_retry_on)
        INTO wait, refusal
        FROM (VALUES (held.job_name)) h(job_name) LEFT JOIN {schema}.jobs j ON j.name = h.job_name;
    END IF;
    IF final OR refusal IS NOT NULL THEN
        wait := NULL;
    END IF;
    room := 4000 - coalesce(length(refusal) + 1, 0);
    IF length(outcome.error_msg) > room THEN
        outcome.error_msg := left(outcome.error_msg, room - 1) || '…';
    END IF;
    IF refusal IS NOT NULL THEN
        outcome.error_msg := concat_ws(E'\n', outcome.error_msg, refusal);
    END IF;
    SELECT f.has_input INTO has_input FROM {schema}_internal.finish_executions(
        ARRAY[held.job_name], ARRAY[held.scope_kind], ARRAY[held.scope_id], ARRAY[held.plan_time],
        ARRAY[token], ARRAY[outcome.status], ARRAY[outcome.result], ARRAY[NULL::bigint], ARRAY[NULL::text],
        ARRAY[outcome.error_code], ARRAY[outcome.error_msg], ARRAY[NULL::bigint], ARRAY[wait],
        ARRAY[outcome.watermark], ARRAY[covers], held.plan_time, held.plan_time,
        with_windows => held.window_start IS NOT NULL) f;
    PERFORM {schema}_internal.rearm_after(held);
    IF has_input THEN
        PERFORM {schema}_internal.settle_inputs(
            ARRAY[held.job_name], ARRAY[held.scope_kind], ARRAY[held.scope_id]);
    END IF;
    RETURN 'ok';
END $$;
COMMENT ON FUNCTION {schema}_internal.end_attempt(bigint, uuid, {schema}.executions, interval, boolean, boolean) IS 'Ends the attempt of a worker with status, result, error and watermark of outcome. FAILED is retried after wait or the backoff of the job, unless it is final or the retry filters of the job prevent it.';

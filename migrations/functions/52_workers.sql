-- Functions for workers in other languages: claim_next, heartbeat, finish, fail, release. They share claim_due
-- with the replicas, and the same guard: every write matches lease_token and status = 'RUNNING'.
-- A replica that serves the queue of an external job plans its firings into PENDING executions; only workers
-- claim them. While one of them is unclaimed, later plan_times of its schedule become skips with reason
-- overlap, or wait (catch_up = all), unless overlap is allow. Workers that were away for a day therefore find
-- one execution. Limits hold at the claim; PENDING executions do not count.
-- The functions are SECURITY DEFINER, as the operator functions are, so that a worker needs no right on a table.
-- Every claim_next and heartbeat updates the row of the worker in runners, which runner_status shows. The row has
-- no queues, because only replicas serve queues; handlers has external:QUEUE for each queue from which the
-- worker has claimed.

CREATE OR REPLACE FUNCTION {schema}_internal.register_worker(worker text, queue text) RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
    seen    {schema}.runners;
    handler text := 'external:' || queue;
BEGIN
    -- started_at: since then, no two calls of the worker were more than a minute apart. A longer gap resets it,
    -- because the clock of the database may have jumped in the gap.
    INSERT INTO {schema}.runners AS r
        (id, host, pid, version, state, queues, slots, started_at, heartbeat_at, stale_after, handlers)
    VALUES (worker, coalesce(host(inet_client_addr()), 'local'), 0, 'external', 'running', '{}', 0,
            {schema}.db_now(), {schema}.db_now(), {schema}.db_now() + interval '60 s', ARRAY[handler])
    ON CONFLICT (id) DO UPDATE
    SET host = EXCLUDED.host, pid = 0, version = 'external', state = 'running', queues = '{}', slots = 0,
        running = 0, heartbeat_at = EXCLUDED.heartbeat_at, stale_after = EXCLUDED.stale_after,
        fingerprint = '{}', clock_skew = '0',
        started_at = CASE WHEN r.version = 'external' AND r.stale_after >= {schema}.db_now()
                          THEN r.started_at ELSE EXCLUDED.started_at END,
        handlers = CASE WHEN r.version <> 'external' OR r.stale_after < {schema}.db_now()
                        THEN EXCLUDED.handlers
                        WHEN handler = ANY (r.handlers) THEN r.handlers
                        ELSE r.handlers || handler END
    WHERE r.version = 'external' OR r.state = 'stopped' OR r.stale_after < {schema}.db_now()
    RETURNING * INTO seen;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'runner %: a live replica has this name', worker
            USING HINT = 'Give the worker a name of its own, such as host-pid.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN seen.started_at;
END $$;
COMMENT ON FUNCTION {schema}_internal.register_worker(text, text) IS 'Registers a worker that claims from this queue. Returns the start of the period in which it has called at least once a minute. It may steal a lease that became stale one stale_timeout after that.';

CREATE OR REPLACE FUNCTION {schema}.claim_next(queue text, runner text, n integer DEFAULT 1)
RETURNS TABLE (
    id bigint, job_name text, scope_kind text, scope_id text, plan_time timestamptz, attempt integer,
    trigger text, payload jsonb, target jsonb, lease_token uuid, stale_after timestamptz,
    stale_timeout interval, run_timeout interval)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan SET seq_page_cost = 1000 AS $$
#variable_conflict use_column
DECLARE
    trusted_since timestamptz;
    tokens        uuid[];
BEGIN
    IF claim_next.queue IS NULL OR coalesce(length(claim_next.runner), 0) NOT BETWEEN 1 AND 200
       OR coalesce(n, 0) NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION 'claim_next: queue = %, runner = %, n = %', claim_next.queue, claim_next.runner, n
            USING HINT = 'queue is the queue of the jobs, runner a name of 1 to 200 characters, n is 1 to 500.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM {schema}_internal.require_read_committed('claim_next');
    trusted_since := {schema}_internal.register_worker(claim_next.runner, claim_next.queue);
    tokens := ARRAY(SELECT gen_random_uuid() FROM generate_series(1, n));
    -- Considers a few more than it claims, because schedules that another claim holds must not hide the rest.
    RETURN QUERY
        SELECT c.id, c.job_name, c.scope_kind, c.scope_id, c.plan_time, c.attempt, c.trigger,
               c.payload::jsonb, j.target, c.lease_token, c.stale_after, j.stale_timeout, j.run_timeout
        FROM {schema}_internal.claim_due(claim_next.runner, ARRAY[claim_next.queue], '{external}', '{}', tokens,
                                trusted_since, max_rows => least(500, n + 20)) c
        JOIN {schema}.jobs j ON j.name = c.job_name
        WHERE c.how <> 'refused';
END $$;
COMMENT ON FUNCTION {schema}.claim_next(text, text, integer) IS 'Claims at most n executions of this queue whose jobs have handler external, for a worker of this name. Each is RUNNING under its lease_token until stale_after; renew it with heartbeat every third of stale_timeout. No row: nothing is due, or nothing may start; call again later. A worker that was seen at least every minute for one stale_timeout also steals stale leases of reentrant jobs. The worker has to stop its work after run_timeout (NULL: no limit), because nothing else stops it. Raises unless the transaction is READ COMMITTED.';

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

CREATE OR REPLACE FUNCTION {schema}.heartbeat(id bigint, token uuid, lease interval DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held      {schema}.executions;
    renewed   interval := lease;
    cancelled boolean;
BEGIN
    IF lease NOT BETWEEN interval '3 s' AND interval '36525 days' THEN
        RAISE EXCEPTION 'execution %: lease = %', heartbeat.id, lease
            USING HINT = 'A lease is 3 s to 36525 days long; NULL: the stale_timeout of the job.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    held := {schema}_internal.lock_lease(heartbeat.id, token);
    IF held.id IS NULL THEN
        PERFORM {schema}_internal.lease_refusal(heartbeat.id, token);
        RETURN 'lost';
    END IF;
    IF renewed IS NULL THEN
        renewed := coalesce((SELECT j.stale_timeout FROM {schema}.jobs j WHERE j.name = held.job_name), '60 s');
    END IF;
    SELECT h.cancel_requested INTO cancelled FROM {schema}_internal.heartbeat_leases(
        ARRAY[held.job_name], ARRAY[held.scope_kind], ARRAY[held.scope_id], ARRAY[held.plan_time],
        ARRAY[token], ARRAY[renewed], held.plan_time, held.plan_time) h;
    -- SKIP LOCKED: a claim_next of the same worker may hold its row.
    UPDATE {schema}.runners r
    SET heartbeat_at = {schema}.db_now(), stale_after = {schema}.db_now() + interval '60 s',
        started_at = CASE WHEN r.stale_after < {schema}.db_now() THEN {schema}.db_now() ELSE r.started_at END
    WHERE r.id = (SELECT n.id FROM {schema}.runners n WHERE n.id = held.runner_id AND n.version = 'external'
                  FOR NO KEY UPDATE SKIP LOCKED);
    RETURN CASE WHEN cancelled THEN 'cancel_requested' ELSE 'ok' END;
END $$;
COMMENT ON FUNCTION {schema}.heartbeat(bigint, uuid, interval) IS 'Renews a lease, for the interval lease or the stale_timeout of the job. ok: it is renewed. cancel_requested: it is renewed, and a cancel was requested; stop the work and call fail, which ends the execution as CANCELLED. lost: the lease was stolen or has ended; stop the work, because nothing can be written under this token.';

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
        PERFORM pg_notify('{schema}', 'pending');
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.rearm_after({schema}.executions) IS 'Makes the schedules due that waited for the end of this execution, and notifies the replicas.';

-- rules/retry_filters.py has this rule for replicas, whose failures have more names than an error_code.
CREATE OR REPLACE FUNCTION {schema}_internal.retry_refusal(code text, retry_on text[], never_retry_on text[])
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'not retried: ' || CASE
        WHEN code = 'retry_requested' THEN NULL
        WHEN code = ANY (never_retry_on) THEN 'never_retry_on has ' || code
        WHEN cardinality(retry_on) > 0 AND code <> ALL (retry_on) THEN 'retry_on has no match' END
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
        ARRAY[outcome.watermark], ARRAY[covers], held.plan_time, held.plan_time) f;
    PERFORM {schema}_internal.rearm_after(held);
    IF has_input THEN
        PERFORM {schema}_internal.settle_inputs(
            ARRAY[held.job_name], ARRAY[held.scope_kind], ARRAY[held.scope_id]);
    END IF;
    RETURN 'ok';
END $$;
COMMENT ON FUNCTION {schema}_internal.end_attempt(bigint, uuid, {schema}.executions, interval, boolean, boolean) IS 'Ends the attempt of a worker with status, result, error and watermark of outcome. FAILED is retried after wait or the backoff of the job, unless it is final or the retry filters of the job prevent it.';

CREATE OR REPLACE FUNCTION {schema}.finish(id bigint, token uuid, result jsonb DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    outcome {schema}.executions;
BEGIN
    outcome.status := 'SUCCESS';
    outcome.result := finish.result;
    RETURN {schema}_internal.end_attempt(finish.id, token, outcome, NULL, true, false);
END $$;
COMMENT ON FUNCTION {schema}.finish(bigint, uuid, jsonb) IS 'Ends an execution as SUCCESS with this result. It covers the input that existed at the claim. ok: written. already_finished: an earlier call under this token has written it. lost: the lease was stolen, released or swept, and nothing was written.';

CREATE OR REPLACE FUNCTION {schema}.finish(id bigint, token uuid, result jsonb, watermark bigint)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    outcome {schema}.executions;
BEGIN
    outcome.status := 'SUCCESS';
    outcome.result := finish.result;
    outcome.watermark := finish.watermark;
    RETURN {schema}_internal.end_attempt(finish.id, token, outcome, NULL, true, true);
END $$;
COMMENT ON FUNCTION {schema}.finish(bigint, uuid, jsonb, bigint) IS 'Ends an execution as SUCCESS, like finish(id, token, result), but covers the input up to watermark. NULL: it covers no input, and the scope stays dirty.';

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
       OR code IN ('stale_timeout', 'runner_crashed', 'shutdown') THEN
        RAISE EXCEPTION 'execution %: code = %', fail.id, code
            USING HINT = 'code is a word of your own, 1 to 100 characters long; stale_timeout, runner_crashed and shutdown are reserved.',
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

CREATE OR REPLACE FUNCTION {schema}.release(id bigint, token uuid)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    held {schema}.executions := {schema}_internal.lock_lease(release.id, token);
BEGIN
    IF held.id IS NULL THEN
        RETURN {schema}_internal.lease_refusal(release.id, token);
    END IF;
    PERFORM {schema}_internal.release_executions(
        ARRAY[held.job_name], ARRAY[held.scope_kind], ARRAY[held.scope_id], ARRAY[held.plan_time],
        ARRAY[token], 'shutdown', 'released by its worker', held.plan_time, held.plan_time);
    PERFORM {schema}_internal.rearm_after(held);
    RETURN 'ok';
END $$;
COMMENT ON FUNCTION {schema}.release(bigint, uuid) IS 'Returns an execution to PENDING with one more attempt, because its worker stops. After a requested cancel it is CANCELLED instead. Call it only when the work has ended or never began. ok: written. already_finished, lost: see finish.';

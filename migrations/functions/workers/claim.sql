-- The claim of one execution by its name.

CREATE OR REPLACE FUNCTION {schema}_internal.due_in_scope(scope {schema}.schedules)
RETURNS {schema}.executions LANGUAGE sql STABLE AS $$
    SELECT e FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (
        SELECT w.job_name, w.scope_kind, w.scope_id, w.plan_time FROM (
            (SELECT n.* FROM {schema}.executions n
             WHERE (n.job_name, n.scope_kind, n.scope_id)
                 = (scope.job_name, scope.scope_kind, scope.scope_id)
               AND n.next_attempt_at IS NOT NULL AND n.enqueue_key IS NULL
             ORDER BY n.enqueue_key, n.next_attempt_at LIMIT 1)
            UNION ALL
            (SELECT k.* FROM {schema}.executions k
             WHERE (k.job_name, k.scope_kind, k.scope_id)
                 = (scope.job_name, scope.scope_kind, scope.scope_id)
               AND k.next_attempt_at IS NOT NULL AND k.enqueue_key IS NOT NULL
             ORDER BY k.next_attempt_at LIMIT 1)) w
        ORDER BY w.next_attempt_at LIMIT 1)
$$;
COMMENT ON FUNCTION {schema}_internal.due_in_scope({schema}.schedules) IS 'Returns the waiting execution of this scope that is due first; NULL: none waits.';

CREATE OR REPLACE FUNCTION {schema}_internal.lock_limits(definition {schema}.jobs) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM {schema}.queues q WHERE q.name = definition.queue AND q.max_running IS NOT NULL
    FOR NO KEY UPDATE;
    PERFORM FROM {schema}.jobs j WHERE j.name = definition.name AND j.max_running IS NOT NULL
    FOR NO KEY UPDATE;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_limits({schema}.jobs) IS 'Locks the rows of the queue and the job if they have a limit, so that a later count of RUNNING executions is exact.';

CREATE OR REPLACE FUNCTION {schema}_internal.is_full(job text, of_queue text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM {schema}.jobs j
        CROSS JOIN LATERAL {schema}_internal.job_room(j.name, j.max_running) limited
        WHERE j.name = job AND limited.room = 0)
    OR EXISTS (
        SELECT FROM {schema}.queues q
        CROSS JOIN LATERAL {schema}_internal.queue_room(q.name, q.max_running) limited
        WHERE q.name = of_queue AND limited.room = 0)
$$;
COMMENT ON FUNCTION {schema}_internal.is_full(text, text) IS 'Returns whether the limit of this job or of this queue leaves no room. Call it after lock_limits, in a statement of its own.';

-- The order of the conditions: paused, running, waiting, done, failed for good, full.
CREATE OR REPLACE FUNCTION {schema}_internal.claim_refusal(
    definition {schema}.jobs, scope {schema}.schedules, running {schema}.executions,
    waiting {schema}.executions, newest {schema}.executions)
RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN (definition.paused_at IS NOT NULL
              AND coalesce(definition.paused_until > {schema}.db_now(), true)
              AND NOT (waiting.trigger = 'manual' AND waiting.status = 'PENDING'
                       AND waiting.plan_time > definition.paused_at) IS TRUE)
            OR EXISTS (SELECT FROM {schema}.unsettled_pauses u WHERE u.job_name = definition.name)
            OR EXISTS (SELECT FROM {schema}.queues q
                       WHERE q.name = coalesce(waiting.queue, definition.queue)
                         AND q.paused_at IS NOT NULL) THEN 'paused'
        WHEN running.id IS NOT NULL AND definition.overlap <> 'allow' THEN 'already_running'
        WHEN waiting.next_attempt_at > {schema}.db_now() THEN 'retry_pending'
        WHEN waiting.id IS NULL AND scope.input_watermark <= scope.success_watermark THEN 'up_to_date'
        WHEN waiting.id IS NULL AND newest.status = 'FAILED' THEN 'retry_exhausted'
        WHEN {schema}_internal.is_full(definition.name, coalesce(waiting.queue, definition.queue))
            THEN 'concurrency_limit'
    END
$$;
COMMENT ON FUNCTION {schema}_internal.claim_refusal({schema}.jobs, {schema}.schedules, {schema}.executions, {schema}.executions, {schema}.executions) IS 'Returns why a claim of this scope gets no execution; NULL: it may have one. retry_pending: the waiting execution is not due yet. retry_exhausted: the newest execution failed for good, and nothing was enqueued since.';

CREATE OR REPLACE FUNCTION {schema}.claim(
    job text, runner text, scope_id text DEFAULT 'global', scope_kind text DEFAULT NULL,
    labels text[] DEFAULT '{}')
RETURNS TABLE (
    answer text, execution_id bigint, lease_token uuid, plan_time timestamptz, attempt integer,
    max_attempts integer, payload jsonb, watermark bigint, stale_after timestamptz, due_at timestamptz,
    window_start timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    definition {schema}.jobs;
    scope      {schema}.schedules;
    running    {schema}.executions;
    waiting    {schema}.executions;
    newest     {schema}.executions;
    trusted    timestamptz;
    steals     boolean;
    at         timestamptz;
    won        record;
BEGIN
    IF claim.runner IS NULL OR length(claim.runner) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION 'job %: runner is not a text of 1 to 200 characters', claim.job
            USING HINT = 'Name the process that will hold the lease.', ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM {schema}_internal.check_runner_labels('claim: labels', labels);
    PERFORM {schema}_internal.require_read_committed('claim');
    PERFORM {schema}_internal.take_up_pauses();
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = claim.job;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_job(claim.job);
    END IF;
    trusted := {schema}_internal.register_worker(claim.runner, definition.queue, claim.labels);
    PERFORM {schema}_internal.lock_limits(definition);
    scope := {schema}_internal.lock_or_create_scope(
        claim.job, coalesce(claim.scope_kind, definition.scope_kind), claim.scope_id);
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = claim.job;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_job(claim.job);
    END IF;
    PERFORM {schema}_internal.check_trigger(definition, scope, force => true);
    IF NOT definition.on <@ labels OR scope.scope_kind = 'host' AND 'host=' || scope.scope_id <> ALL (labels) THEN
        RAISE EXCEPTION 'job %: runner % has the labels %, and on = %', claim.job, claim.runner,
                array_to_string(labels, ','), array_to_string(definition.on, ',')
            USING HINT = 'Claim it with a runner that has these labels, or change "on" of the job.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    scope := {schema}_internal.settle_input(scope);
    SELECT e.* INTO running FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (scope.job_name, scope.scope_kind, scope.scope_id)
      AND e.status = 'RUNNING' AND e.runner_id <> 'observed' ORDER BY e.stale_after LIMIT 1;
    waiting := {schema}_internal.due_in_scope(scope);
    SELECT e.* INTO newest FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (scope.job_name, scope.scope_kind, scope.scope_id)
    ORDER BY e.plan_time DESC LIMIT 1;
    steals := coalesce({schema}_internal.is_stale(running.stale_after, definition.stale_timeout, trusted)
        AND {schema}_internal.may_be_stolen(definition.allow_stale_reentry, running.cancel_requested_at,
                                            running.attempt, running.max_attempts)
        AND definition.paused_at IS NULL
        AND NOT EXISTS (SELECT FROM {schema}.unsettled_pauses u WHERE u.job_name = definition.name)
        AND (definition.overlap <> 'allow' OR waiting.id IS NULL), false);
    answer := CASE WHEN NOT steals
        THEN {schema}_internal.claim_refusal(definition, scope, running, waiting, newest) END;
    IF answer IS NOT NULL THEN
        won := CASE answer WHEN 'already_running' THEN running WHEN 'retry_pending' THEN waiting
                           ELSE newest END;
        execution_id := won.id; plan_time := won.plan_time; attempt := won.attempt;
        max_attempts := won.max_attempts; watermark := won.watermark;
        stale_after := CASE answer WHEN 'already_running' THEN won.stale_after END;
        due_at := CASE answer WHEN 'retry_pending' THEN won.next_attempt_at END;
        RETURN NEXT;
        RETURN;
    END IF;
    IF steals THEN
        waiting := running;
    ELSIF waiting.id IS NULL THEN
        -- Backwards from the statement's time, which is what claim_existing compares with.
        at := {schema}_internal.free_plan_time(scope, {schema}.db_now(), '-1 microsecond');
        PERFORM {schema}_internal.create_enqueued(definition, scope, at, at, '', NULL, scope.input_watermark, NULL,
                                       claim.runner);
        waiting := {schema}_internal.due_in_scope(scope);
    END IF;
    SELECT t.* INTO won FROM {schema}_internal.claim_existing(
        claim.runner,
        ARRAY[ROW(scope.job_name, scope.scope_kind, scope.scope_id, waiting.plan_time, waiting.id,
                  waiting.queue, steals, waiting.trigger = 'manual' AND waiting.status = 'PENDING',
                  definition.stale_timeout, definition.allow_stale_reentry,
                  scope.input_watermark, scope.running_from,
                  definition.windows AND waiting.trigger <> 'enqueue', NULL)::{schema}_internal.claim_candidate],
        ARRAY[gen_random_uuid()], trusted) t;
    answer := coalesce(won.how, 'busy');
    execution_id := waiting.id; plan_time := waiting.plan_time;
    IF won.lease_token IS NOT NULL THEN
        lease_token := won.lease_token; attempt := won.attempt; max_attempts := won.max_attempts;
        payload := won.payload::jsonb; stale_after := won.stale_after;
        watermark := coalesce(scope.input_watermark, waiting.watermark); due_at := waiting.due_at;
        window_start := won.window_start;
    END IF;
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION {schema}.claim(text, text, text, text, text[]) IS 'Claims one execution of this scope: a PENDING execution that is due, or else a new one. labels: those of the caller; raises unless they include those of "on" of the job. If the column answer is won, retried or stolen, the execution is RUNNING and the caller holds its lease (lease_token) until stale_after. The caller renews the lease with heartbeat, and ends the execution with finish or fail. Any other answer means that nothing was claimed. In that case, execution_id is the execution that prevents the claim, and answer is the reason: already_running, retry_pending (until due_at), up_to_date, retry_exhausted (enqueue, or retry it), concurrency_limit, paused, busy (its row is locked, or its window was processed meanwhile; call again), refused (the database does not accept a value; see spec_error). window_start: of a job with windows, the start of the time to process, which ends before plan_time; NULL: the execution was enqueued or created by this call. A worker that was seen for one stale_timeout also steals a stale lease of a reentrant job. The function raises an error if the job is unknown or retired, and if the transaction is not READ COMMITTED. It waits for the locks of the limited queue, the limited job and the schedule (lock_timeout).';

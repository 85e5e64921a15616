-- Operator function: past plan_times run, or run again, as ordinary rows under their own key. Lock order: the
-- schedule row, then executions by key. Nothing else plans or claims this scope meanwhile, so what was read
-- stays true until the COMMIT.

CREATE OR REPLACE FUNCTION {schema}_internal.check_backfill(
    definition {schema}.jobs, scope {schema}.schedules, plan_times timestamptz[], reprocess text,
    cap integer)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    at    timestamptz := {schema}.db_clock();
    keep  interval := (SELECT r.keep FROM {schema}.retention r);
    first timestamptz;
    last  timestamptz;
    odd   timestamptz;
BEGIN
    SELECT min(u.at), max(u.at), min(u.at) FILTER (WHERE u.at <> date_trunc('second', u.at))
    INTO first, last, odd FROM unnest(plan_times) u(at);
    IF reprocess IS NULL OR reprocess NOT IN ('none', 'failed', 'all') THEN
        RAISE EXCEPTION 'job %: reprocess % is unknown', definition.name, coalesce(reprocess, 'NULL')
            USING HINT = 'Use none, failed or all.', ERRCODE = 'invalid_parameter_value';
    ELSIF cap < 0 THEN
        RAISE EXCEPTION 'job %: cap % is less than 0', definition.name, cap
            USING HINT = 'cap limits the number of executions that are made or retried; NULL: no limit.',
                  ERRCODE = 'invalid_parameter_value';
    ELSIF cardinality(plan_times) > 10000 OR array_position(plan_times, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'job %: plan_times has % values, or contains a NULL', definition.name, cardinality(plan_times)
            USING HINT = 'Give at most 10,000 values in one call, none of them NULL.',
                  ERRCODE = 'invalid_parameter_value';
    ELSIF odd IS NOT NULL THEN
        RAISE EXCEPTION 'job %: plan_time % is not a whole second', definition.name, odd
            USING HINT = 'The plan_times of schedules are whole seconds; trigger uses all others.',
                  ERRCODE = 'invalid_parameter_value';
    ELSIF first < at - keep THEN
        RAISE EXCEPTION 'job %: plan_time % is older than the retention of %', definition.name, {schema}_internal.utc_text(first), keep
            USING HINT = 'Its row would be pruned, as its history was. Begin later, or keep executions for longer with {schema}.set_retention.',
                  ERRCODE = 'invalid_parameter_value';
    ELSIF last > at OR (definition.schedule IS NOT NULL AND last > scope.planned_through) THEN
        -- The planner creates those itself, and needs their keys to be free.
        RAISE EXCEPTION 'job %: plan_time % is not past, or not planned yet', definition.name, {schema}_internal.utc_text(last)
            USING HINT = format('%s/%s is planned through %s; its schedule plans later ones.',
                                scope.scope_kind, scope.scope_id, {schema}_internal.utc_text(scope.planned_through)),
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM {schema}_internal.check_trigger(definition, scope, force => true);
    IF definition.windows THEN
        PERFORM {schema}_internal.check_window(scope.job_name, scope.scope_kind, scope.scope_id, first);
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_backfill({schema}.jobs, {schema}.schedules, timestamptz[], text, integer) IS 'Raises if these plan_times of this scope may not be backfilled. They have to be past, planned, whole seconds, and within retention; job and scope must not be retired. Pauses are ignored, because the executions wait.';

CREATE OR REPLACE FUNCTION {schema}_internal.backfill_actions(
    definition {schema}.jobs, scope {schema}.schedules, plan_times timestamptz[], reprocess text,
    ended_before timestamptz)
RETURNS TABLE (plan_time timestamptz, place bigint, id bigint, action text)
LANGUAGE sql STABLE AS $$
    WITH asked AS (
        SELECT u.at, min(u.n) AS n FROM unnest(plan_times) WITH ORDINALITY u(at, n) GROUP BY u.at
    )
    SELECT a.at, a.n, e.id, CASE
        WHEN e.id IS NULL THEN 'make'
        WHEN reprocess = 'none' OR e.next_attempt_at IS NOT NULL OR e.finished_at >= ended_before THEN NULL
        WHEN e.status = 'CANCELLED' OR e.status = 'FAILED' THEN
            CASE WHEN e.redacted_at IS NULL AND (definition.allow_stale_reentry OR e.error_code IS NULL
                      OR e.error_code NOT IN ('stale_timeout', 'shutdown', 'not_ended')) THEN 'retry' END
        WHEN e.status = 'SUCCESS' AND reprocess = 'all' AND NOT EXISTS (
            -- An earlier repetition that has not ended, or that this backfill created before it was stopped.
            SELECT FROM {schema}.executions r
            WHERE (r.job_name, r.scope_kind, r.scope_id)
                = (scope.job_name, scope.scope_kind, scope.scope_id)
              AND r.plan_time > a.at AND r.plan_time < a.at + interval '1 s' AND r.trigger = 'backfill'
              AND (r.status IN ('PENDING', 'RUNNING') OR r.next_attempt_at IS NOT NULL
                   OR r.created_at >= ended_before)) THEN 'repeat'
        END
    FROM asked a LEFT JOIN {schema}.executions e
        ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
         = (scope.job_name, scope.scope_kind, scope.scope_id, a.at)
    ORDER BY a.n
$$;
COMMENT ON FUNCTION {schema}_internal.backfill_actions({schema}.jobs, {schema}.schedules, timestamptz[], text, timestamptz) IS 'Returns what a backfill does for each plan_time, in the given order: make, retry, repeat (beside a SUCCESS), or NULL for nothing.';

CREATE OR REPLACE FUNCTION {schema}.preview_backfill(
    job text, plan_times timestamptz[], scope_kind text DEFAULT 'global',
    scope_id text DEFAULT 'global', reprocess text DEFAULT 'none',
    ended_before timestamptz DEFAULT NULL)
RETURNS TABLE (plan_time timestamptz, action text, id bigint, status text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT a.plan_time, a.action, a.id, e.status
    FROM {schema}.schedules s JOIN {schema}.jobs j ON j.name = s.job_name
    CROSS JOIN LATERAL {schema}_internal.backfill_actions(
        j, s, preview_backfill.plan_times, preview_backfill.reprocess,
        preview_backfill.ended_before) a
    LEFT JOIN {schema}.executions e
        ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
         = (s.job_name, s.scope_kind, s.scope_id, a.plan_time)
    WHERE (s.job_name, s.scope_kind, s.scope_id)
        = (preview_backfill.job, preview_backfill.scope_kind, preview_backfill.scope_id)
    ORDER BY a.place
$$;
COMMENT ON FUNCTION {schema}.preview_backfill(text, timestamptz[], text, text, text, timestamptz) IS 'Returns the action of a backfill for each of these plan_times, in their order, and the existing execution. Actions are make, retry, repeat (beside a SUCCESS), or NULL for none. Returns no rows if the scope does not exist.';

CREATE OR REPLACE FUNCTION {schema}_internal.create_backfilled(
    definition {schema}.jobs, scope {schema}.schedules, first_free timestamptz, requester text,
    traceparent text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    plan timestamptz := first_free;
    due  timestamptz := {schema}.db_clock();
    gated boolean;
BEGIN
    WHILE EXISTS (SELECT FROM {schema}.executions e
                  WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
                      = (scope.job_name, scope.scope_kind, scope.scope_id, plan)) LOOP
        plan := plan + interval '1 microsecond';
    END LOOP;
    gated := {schema}_internal.is_gated(definition);
    INSERT INTO {schema}.executions
        (job_name, scope_kind, scope_id, plan_time, status, trigger, revision, queue, due_at,
         next_attempt_at, gated_at, payload, attempt, max_attempts, requested_by, traceparent)
    VALUES (scope.job_name, scope.scope_kind, scope.scope_id, plan, 'PENDING', 'backfill',
            definition.revision, definition.queue, due, CASE WHEN NOT gated THEN due END,
            CASE WHEN gated THEN due END, definition.payload, 0,
            definition.max_attempts, requester, traceparent);
    IF gated THEN
        INSERT INTO {schema}.gates (job_name, scope_kind, scope_id, plan_time)
        VALUES (scope.job_name, scope.scope_kind, scope.scope_id, plan);
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.create_backfilled({schema}.jobs, {schema}.schedules, timestamptz, text, text) IS 'Creates one PENDING execution at this plan_time, or at the first free microsecond after it. It is due now, under the current revision, or waits for the jobs that its job requires.';

CREATE OR REPLACE FUNCTION {schema}.backfill(
    job text, plan_times timestamptz[], scope_kind text DEFAULT 'global',
    scope_id text DEFAULT 'global', reprocess text DEFAULT 'none', cap integer DEFAULT NULL,
    ended_before timestamptz DEFAULT NULL, requested_by text DEFAULT NULL, traceparent text DEFAULT NULL)
RETURNS TABLE (made bigint, retried bigint, left_alone bigint, remaining bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    requester  text := coalesce(requested_by, session_user);
    definition {schema}.jobs;
    scope      {schema}.schedules;
    step       record;
    began      boolean;
    again      bigint[] := '{}';
BEGIN
    IF traceparent IS NOT NULL THEN
        PERFORM {schema}_internal.check_traceparent(job, traceparent);
    END IF;
    SELECT s.* INTO scope FROM {schema}.schedules s
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (backfill.job, backfill.scope_kind, backfill.scope_id)
    FOR NO KEY UPDATE;
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = backfill.job;
    IF NOT FOUND THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    ELSIF scope.job_name IS NULL THEN
        PERFORM {schema}_internal.raise_unknown_scope(job, scope_kind, scope_id);
    END IF;
    PERFORM {schema}_internal.check_backfill(definition, scope, plan_times, reprocess, cap);
    PERFORM {schema}_internal.create_missing_partitions(plan_times);
    IF reprocess <> 'none' THEN
        -- All at once and in key order, whatever the given order. FOR UPDATE, as in retry.
        PERFORM FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id)
            = (scope.job_name, scope.scope_kind, scope.scope_id) AND e.plan_time = ANY (plan_times)
          AND e.status IN ('FAILED', 'CANCELLED') AND e.next_attempt_at IS NULL
        ORDER BY e.plan_time FOR UPDATE;
    END IF;
    made := 0; retried := 0; left_alone := 0; remaining := 0;
    began := {schema}_internal.begin_action();
    FOR step IN SELECT * FROM {schema}_internal.backfill_actions(
            definition, scope, plan_times, reprocess, ended_before) LOOP
        IF step.action IS NULL THEN
            left_alone := left_alone + 1;
        ELSIF made + retried >= cap THEN
            remaining := cardinality(plan_times) - step.place + 1;
            EXIT;
        ELSIF step.action = 'retry' THEN
            PERFORM {schema}.retry(step.id, requested_by => requester);
            retried := retried + 1;
            again := again || step.id;
        ELSE
            PERFORM {schema}_internal.create_backfilled(definition, scope, step.plan_time, requester,
                                                         traceparent);
            made := made + 1;
        END IF;
    END LOOP;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('backfill', 'job', job, requester,
        CASE WHEN made + retried = 0 THEN 'unchanged' ELSE 'done' END, job, execution_ids => again,
        arguments => jsonb_build_object(
            'scope_kind', scope_kind, 'scope_id', scope_id, 'reprocess', reprocess, 'cap', cap,
            'ended_before', ended_before, 'plan_times', cardinality(plan_times),
            'first', (SELECT min(u.at) FROM unnest(plan_times) u(at)),
            'last', (SELECT max(u.at) FROM unnest(plan_times) u(at)),
            'made', made, 'retried', retried, 'left_alone', left_alone, 'remaining', remaining));
    IF made > 0 THEN
        PERFORM {schema}_internal.check_runner(
            definition, false, CASE scope.scope_kind WHEN 'host' THEN scope.scope_id END);
        PERFORM pg_notify('{schema}', CASE WHEN {schema}_internal.is_gated(definition) THEN 'gates' ELSE 'pending' END);
    END IF;
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION {schema}.backfill(text, timestamptz[], text, text, text, integer, timestamptz, text, text) IS 'Creates executions for past plan_times of one scope, in the given order: made. Existing executions are left alone. With reprocess = failed, an execution that is FAILED or CANCELLED gets one more attempt: retried. The exception is an attempt of unknown end, if the job is not reentrant. With reprocess = all, a SUCCESS is also repeated, as a new execution microseconds after its plan_time. At most cap executions are made or retried; remaining: the number of plan_times that were not reached. ended_before: executions that ended or were repeated since that instant are left alone, so that a stopped backfill can continue. traceparent: the span that creates executions, see enqueue. Executions that are retried keep theirs.';

-- Reports of runs that another scheduler started. SQL cannot evaluate a schedule, so it stores a report and wakes the
-- schedule, and the next claim makes an execution of it (record_reports). Lock order: the schedule row, then the
-- execution, then the report. A claim holds the lock of the schedule from its reads to its COMMIT, so it knows every
-- report that was committed before.

CREATE OR REPLACE FUNCTION {schema}_internal.may_be_observed(definition jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(definition ->> 'handler' = 'observed' OR (definition -> 'observed')::boolean, false)
$$;
COMMENT ON FUNCTION {schema}_internal.may_be_observed(jsonb) IS 'Returns whether another scheduler fires plan_times of a job with this definition.';

CREATE OR REPLACE FUNCTION {schema}_internal.lock_observed(job text, scope_kind text, scope_id text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    definition {schema}.jobs;
    has_scope  boolean;
BEGIN
    PERFORM FROM {schema}.schedules s
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (lock_observed.job, lock_observed.scope_kind, lock_observed.scope_id)
    FOR NO KEY UPDATE;
    has_scope := FOUND;
    SELECT j.* INTO definition FROM {schema}.jobs j WHERE j.name = job;
    IF NOT FOUND THEN  -- the schedules of a deleted job remain
        PERFORM {schema}_internal.raise_unknown_job(job);
    ELSIF NOT has_scope THEN
        PERFORM {schema}_internal.raise_unknown_scope(job, scope_kind, scope_id);
    END IF;
    -- A job that was adopted still gets the last reports of the other scheduler.
    IF definition.handler <> 'observed' AND NOT definition.observed AND NOT EXISTS (
        SELECT FROM {schema}.job_revisions r
        WHERE r.job_name = job AND {schema}_internal.may_be_observed(r.definition)) THEN
        RAISE EXCEPTION 'job %: its handler is %, and only an observed job accepts reports', job, definition.handler
            USING HINT = 'If another scheduler fires the job, declare it with observed = true; in SQL, set the handler observed.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_observed(text, text, text) IS 'Locks the schedule of this scope, and raises unless its job takes reports.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_report(
    job text, run_key text, started_at timestamptz, ended_at timestamptz, source text, exit_status integer DEFAULT 0)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    now_    timestamptz := {schema}.db_clock();
    problem text := CASE
        WHEN length(run_key) NOT BETWEEN 1 AND 200 THEN format('run_key has %s characters; the limits are 1 and 200', length(run_key))
        WHEN started_at < now_ - interval '7 days' THEN format('started_at %s is more than 7 days ago', {schema}_internal.utc_text(started_at))
        WHEN started_at <= {schema}.pruned_through() THEN
            format('started_at %s lies in the time whose executions were pruned, which lasts through %s',
                   {schema}_internal.utc_text(started_at), {schema}_internal.utc_text({schema}.pruned_through()))
        WHEN greatest(started_at, ended_at) > now_ + interval '1 minute' THEN
            format('%s lies in the future of the database, whose clock is at %s',
                   {schema}_internal.utc_text(greatest(started_at, ended_at)), {schema}_internal.utc_text(now_))
        WHEN source IS NULL OR length(source) NOT BETWEEN 1 AND 40 THEN
            format('source %s does not have 1 to 40 characters', coalesce(left(source, 60), 'NULL'))
        WHEN exit_status NOT BETWEEN 0 AND 255 THEN format('exit_status %s is not 0 to 255', exit_status)
        END;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'job %: %', job, problem
            USING HINT = 'Give a run_key of 1 to 200 characters, a source of 1 to 40, and instants of the last 7 days by the clock of the database. To report a run as it starts or ends, omit the instants. Give an exit_status of 0 to 255, which for a signal is 128 plus its number, as in a shell; or NULL and the error.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_report(text, text, timestamptz, timestamptz, text, integer) IS 'Raises unless these values of a report are possible.';

CREATE OR REPLACE FUNCTION {schema}_internal.wake_observed(job text, scope_kind text, scope_id text)
RETURNS void LANGUAGE sql AS $$
    UPDATE {schema}.schedules s
    SET parked = NULL, next_due_at = least(s.next_due_at, {schema}.db_clock()), woken = true
    WHERE (s.job_name, s.scope_kind, s.scope_id) = (wake_observed.job, wake_observed.scope_kind, wake_observed.scope_id)
      AND NOT s.woken;
    SELECT pg_notify('{schema}', 'reports');
$$;
COMMENT ON FUNCTION {schema}_internal.wake_observed(text, text, text) IS 'Makes the next claim read the reports of this scope. The caller holds the lock of the schedule.';

CREATE OR REPLACE FUNCTION {schema}.observe_start(
    job text, run_key text DEFAULT NULL, started_at timestamptz DEFAULT NULL,
    scope_kind text DEFAULT 'global', scope_id text DEFAULT 'global', host text DEFAULT NULL,
    source text DEFAULT 'sql')
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made bigint;
BEGIN
    PERFORM {schema}_internal.check_report(job, run_key, started_at, NULL, source);
    PERFORM {schema}_internal.lock_observed(job, scope_kind, scope_id);
    SELECT r.id INTO made FROM {schema}.reports r
    WHERE (r.job_name, r.scope_kind, r.scope_id, r.run_key)
        = (observe_start.job, observe_start.scope_kind, observe_start.scope_id, observe_start.run_key);
    IF FOUND THEN
        RETURN made;
    END IF;
    INSERT INTO {schema}.reports (job_name, scope_kind, scope_id, run_key, started_at, host, source)
    VALUES (job, scope_kind, scope_id, observe_start.run_key, coalesce(started_at, {schema}.db_clock()),
            left(host, 200), source)
    RETURNING id INTO made;
    PERFORM {schema}_internal.wake_observed(job, scope_kind, scope_id);
    RETURN made;
END $$;
COMMENT ON FUNCTION {schema}.observe_start(text, text, timestamptz, text, text, text, text) IS 'Reports that another scheduler has started a run of an observed job, and returns the id of the report. run_key: a second report with the same key changes nothing, and observe_end() finds the run by it. started_at: by the clock of the database, at most 7 days ago; NULL: now. The transaction holds the lock of the schedule until its COMMIT.';

-- The outcome that a report states: the status, the error_code and the error_msg of its execution.
CREATE OR REPLACE FUNCTION {schema}_internal.reported_outcome(
    report {schema}.reports, OUT status text, OUT error_code text, OUT error_msg text)
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN report.ended_at IS NULL THEN 'RUNNING'
                WHEN report.error IS NULL AND coalesce(report.exit_status, 0) = 0 THEN 'SUCCESS' ELSE 'FAILED' END,
           CASE WHEN report.ended_at IS NULL THEN NULL
                WHEN report.exit_status <> 0 THEN 'exit_code'
                WHEN report.error IS NOT NULL THEN 'reported' END,
           coalesce(report.error, CASE WHEN report.exit_status <> 0 THEN format('exit status %s', report.exit_status) END)
$$;
COMMENT ON FUNCTION {schema}_internal.reported_outcome({schema}.reports) IS 'Returns the status, the error_code and the error_msg that follow from a report.';

CREATE OR REPLACE FUNCTION {schema}_internal.end_observed(report {schema}.reports)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ended record;
BEGIN
    SELECT o.* INTO ended FROM {schema}_internal.reported_outcome(report) o;
    -- The sweeper may have ended it, because no end was reported in time. Then that end is an earlier attempt. A retry that
    -- has not started has become needless. If it has started, the report keeps its end, and the execution gets that of the
    -- new attempt.
    UPDATE {schema}.executions e
    SET status = CASE WHEN ended.status = 'FAILED' AND e.cancel_requested_at IS NOT NULL THEN 'CANCELLED' ELSE ended.status END,
        error_code = ended.error_code, error_msg = ended.error_msg, output = report.output,
        next_attempt_at = NULL, finished_at = report.ended_at, updated_at = {schema}.db_clock(), changed_xact = pg_current_xact_id(),
        duration_ms = greatest(0, extract(epoch FROM report.ended_at - e.started_at) * 1000)::bigint,
        attempt = e.attempt + (e.status <> 'RUNNING')::integer,
        max_attempts = e.max_attempts + (e.status <> 'RUNNING')::integer,
        lease_token = CASE WHEN e.status = 'RUNNING' THEN e.lease_token ELSE gen_random_uuid() END,
        attempts = CASE WHEN e.status = 'RUNNING' THEN e.attempts ELSE e.attempts || jsonb_build_object(
            'attempt', e.attempt, 'runner_id', e.runner_id, 'lease_token', e.lease_token, 'started_at', e.started_at,
            'last_seen', e.heartbeat_at, 'ended_at', e.finished_at, 'error_code', e.error_code,
            'error_msg', e.error_msg) END
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
        = (report.job_name, report.scope_kind, report.scope_id, report.plan_time)
      AND e.id = report.execution_id AND e.runner_id = 'observed'
      AND (e.status = 'RUNNING' OR e.error_code = 'not_ended');
    IF FOUND THEN
        UPDATE {schema}.reports r SET error = NULL, output = NULL WHERE r.id = report.id;
        PERFORM {schema}_internal.wake_gates(ARRAY[report.job_name], ARRAY[report.scope_kind], ARRAY[report.scope_id]);
        PERFORM pg_notify('{schema}', 'rearmed')
        FROM {schema}.schedules s
        WHERE (s.job_name, s.scope_kind, s.scope_id) = (report.job_name, report.scope_kind, report.scope_id)
          AND s.parked IN ('waiting', 'limit');
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.end_observed({schema}.reports) IS 'Writes the reported end into the execution of a report. The caller holds the lock of the schedule.';

CREATE OR REPLACE FUNCTION {schema}.observe_end(
    job text, run_key text DEFAULT NULL, exit_status integer DEFAULT 0, error text DEFAULT NULL,
    output text DEFAULT NULL, ended_at timestamptz DEFAULT NULL, started_at timestamptz DEFAULT NULL,
    scope_kind text DEFAULT 'global', scope_id text DEFAULT 'global', host text DEFAULT NULL,
    source text DEFAULT 'sql')
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_   timestamptz := {schema}.db_clock();
    begun  timestamptz := coalesce(started_at, ended_at, now_);
    report {schema}.reports;
BEGIN
    PERFORM {schema}_internal.lock_observed(job, scope_kind, scope_id);
    SELECT r.* INTO report FROM {schema}.reports r
    WHERE (r.job_name, r.scope_kind, r.scope_id) = (observe_end.job, observe_end.scope_kind, observe_end.scope_id)
      AND CASE WHEN observe_end.run_key IS NULL THEN r.run_key IS NULL AND r.ended_at IS NULL
               ELSE r.run_key = observe_end.run_key END
    ORDER BY r.started_at DESC, r.id DESC LIMIT 1;
    -- The start of a run that was reported counts, however long ago it was.
    PERFORM {schema}_internal.check_report(
        job, run_key, CASE WHEN report.id IS NULL THEN begun ELSE now_ END, ended_at, source, exit_status);
    IF report.id IS NULL THEN
        INSERT INTO {schema}.reports (job_name, scope_kind, scope_id, run_key, started_at, host, source)
        VALUES (job, scope_kind, scope_id, observe_end.run_key, begun, left(host, 200), source)
        RETURNING * INTO report;
        PERFORM {schema}_internal.wake_observed(job, scope_kind, scope_id);
    ELSIF report.ended_at IS NOT NULL THEN
        RETURN report.id;
    END IF;
    UPDATE {schema}.reports r
    SET ended_at = greatest(r.started_at, coalesce(observe_end.ended_at, now_)), end_received_at = now_,
        exit_status = observe_end.exit_status, error = left({schema}_internal.masked(observe_end.error), 4000),
        output = right({schema}_internal.masked(observe_end.output), 65536)
    WHERE r.id = report.id RETURNING r.* INTO report;
    IF report.execution_id IS NOT NULL THEN
        PERFORM {schema}_internal.end_observed(report);
    END IF;
    RETURN report.id;
END $$;
COMMENT ON FUNCTION {schema}.observe_end(text, text, integer, text, text, timestamptz, timestamptz, text, text, text, text) IS 'Reports the end of a run of an observed job, and returns the id of the report. run_key identifies the run, and a second end with the same key changes nothing. Without a run_key, the report ends the newest run without a key that has not ended. If there is no such run, the report adds one that began at started_at, or at its end if started_at is NULL. The run succeeded if error is NULL and exit_status is 0 or NULL. An exit_status is 0 to 255. Both instants are by the clock of the database, and ended_at is now by default. The ledger keeps the last 65,536 characters of the output, with passwords masked.';

-- The execution has error and output from then on, so that a redaction finds them in one place.
-- One by one, because an instant beside the schedule depends on those before it. The caller holds the locks of the
-- schedules, so that only this transaction makes executions of these reports.
CREATE OR REPLACE FUNCTION {schema}_internal.record_reports(
    of_reports bigint[], of_plans timestamptz[], are_exact boolean[], of_triggers text[], of_revisions bigint[],
    of_queues text[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    u      record;
    report {schema}.reports;
    ended  record;
    plan   timestamptz;
    made   bigint;
BEGIN
    FOR u IN SELECT t.* FROM unnest(of_reports, of_plans, are_exact, of_triggers, of_revisions, of_queues)
                 AS t(report, plan, exact, trigger, revision, queue)
             JOIN {schema}.reports r ON r.id = t.report
             ORDER BY r.job_name, r.scope_kind, r.scope_id, t.plan, t.report LOOP
        SELECT r.* INTO report FROM {schema}.reports r WHERE r.id = u.report AND r.execution_id IS NULL FOR NO KEY UPDATE;
        CONTINUE WHEN NOT FOUND;
        SELECT o.* INTO ended FROM {schema}_internal.reported_outcome(report) o;
        plan := u.plan;
        -- An odd number of microseconds, as in free_plan_time.
        WHILE (NOT u.exact AND extract(microseconds FROM plan)::bigint % 2 = 0) OR EXISTS (
            SELECT FROM {schema}.executions e
            WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
                = (report.job_name, report.scope_kind, report.scope_id, plan)) LOOP
            plan := plan + interval '1 microsecond';
        END LOOP;
        INSERT INTO {schema}.executions
            (job_name, scope_kind, scope_id, plan_time, status, trigger, revision, queue, due_at, attempt, max_attempts,
             runner_id, lease_token, heartbeat_at, stale_after, started_at, finished_at, duration_ms, output, error_code,
             error_msg, changed_xact)
        SELECT report.job_name, report.scope_kind, report.scope_id, plan, ended.status,
               CASE WHEN plan = u.plan THEN u.trigger ELSE 'observed' END, u.revision, u.queue, plan, 1, 1, 'observed',
               gen_random_uuid(), report.received_at,
               coalesce(report.started_at + j.run_timeout, timestamptz '9999-01-01 00:00+00'), report.started_at,
               report.ended_at, greatest(0, extract(epoch FROM report.ended_at - report.started_at) * 1000)::bigint,
               report.output, ended.error_code, ended.error_msg,
               CASE WHEN report.ended_at IS NOT NULL THEN pg_current_xact_id() END
        FROM {schema}.jobs j WHERE j.name = report.job_name
        RETURNING id INTO made;
        CONTINUE WHEN NOT FOUND;  -- the job was deleted
        UPDATE {schema}.reports r SET execution_id = made, plan_time = plan, error = NULL, output = NULL WHERE r.id = report.id;
    END LOOP;
END $$;
COMMENT ON FUNCTION {schema}_internal.record_reports(bigint[], timestamptz[], boolean[], text[], bigint[], text[]) IS 'Makes an execution of each of these reports, with the trigger, the revision and the queue that the claim has chosen. exact: at this plan_time; otherwise at the first instant from there on that no schedule can have.';

-- Operator functions: decide that plan_times do not run, and take that back. Lock: the row of the job, so that no scope
-- appears meanwhile, and then its schedules by key. A claim holds the lock of a schedule from its reads to its COMMIT,
-- and a claim ahead until the start, so none starts what this transaction skips.

CREATE OR REPLACE FUNCTION {schema}_internal.lock_schedules(job text, scope_kind text, scope_id text)
RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    reached timestamptz;
BEGIN
    PERFORM FROM {schema}.schedules s
    WHERE s.job_name = job
      AND (lock_schedules.scope_id IS NULL OR (s.scope_kind, s.scope_id) = (lock_schedules.scope_kind, lock_schedules.scope_id))
    ORDER BY s.job_name, s.scope_kind, s.scope_id FOR NO KEY UPDATE;
    -- A new statement, which sees what was planned during the wait.
    SELECT max(s.planned_through) INTO reached FROM {schema}.schedules s
    WHERE s.job_name = job
      AND (lock_schedules.scope_id IS NULL OR (s.scope_kind, s.scope_id) = (lock_schedules.scope_kind, lock_schedules.scope_id));
    RETURN reached;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_schedules(text, text, text) IS 'Locks the schedules of a job in the order of their keys, and returns their latest cursor, or NULL if there are none. With scope_id NULL it locks the schedules of all scopes.';

CREATE OR REPLACE FUNCTION {schema}_internal.wake_schedules(job text, scope_kind text, scope_id text)
RETURNS void LANGUAGE sql AS $$
    UPDATE {schema}.schedules s
    SET parked = NULL, next_due_at = least(s.next_due_at, {schema}.db_clock()), woken = true
    WHERE s.job_name = wake_schedules.job AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
      AND (wake_schedules.scope_id IS NULL OR (s.scope_kind, s.scope_id) = (wake_schedules.scope_kind, wake_schedules.scope_id));
    SELECT pg_notify('{schema}', 'jobs');
$$;
COMMENT ON FUNCTION {schema}_internal.wake_schedules(text, text, text) IS 'Makes the next claim plan the schedules of a job. scope_id NULL: of all its scopes. The caller holds their locks.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_skip(
    definition {schema}.jobs, scope_kind text, scope_id text, plan_time timestamptz, through timestamptz, reason text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    latest  timestamptz := {schema}.db_clock() + interval '36525 days';
    problem text := CASE
        WHEN plan_time IS NULL THEN 'plan_time is NULL'
        WHEN plan_time < '1970-01-01 00:00+00' THEN format('plan_time %s is before 1970', {schema}_internal.utc_text(plan_time))
        WHEN through < plan_time THEN
            format('through %s is before plan_time %s', {schema}_internal.utc_text(through), {schema}_internal.utc_text(plan_time))
        WHEN through > latest THEN format('through %s is more than 100 years ahead', {schema}_internal.utc_text(through))
        WHEN coalesce(btrim(reason), '') = '' THEN 'reason is empty'
        WHEN length(reason) > 1000 THEN format('reason has %s characters; the limit is 1000', length(reason))
        WHEN scope_kind IS NOT NULL AND scope_id IS NULL THEN format('scope_kind %s is given without scope_id', scope_kind)
        END;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'job %: %', definition.name, problem
            USING HINT = 'Give the first and the last plan_time to skip, the reason, and for one scope its kind and id.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    IF definition.retired_at IS NOT NULL OR EXISTS (
        SELECT FROM {schema}.schedules s
        WHERE (s.job_name, s.scope_kind, s.scope_id) = (definition.name, check_skip.scope_kind, check_skip.scope_id)
          AND s.retired_at IS NOT NULL AND s.returned_at IS NULL) THEN
        RAISE EXCEPTION 'job %: % retired', definition.name, CASE WHEN definition.retired_at IS NOT NULL
                THEN 'it is' ELSE format('its scope %s/%s is', scope_kind, scope_id) END
            USING HINT = 'A retired job or scope does not run, so there is nothing to skip.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_skip({schema}.jobs, text, text, timestamptz, timestamptz, text) IS 'Raises if these plan_times cannot be skipped, whatever was planned already. The caller holds the lock of the job.';

CREATE OR REPLACE FUNCTION {schema}.skip(
    job text, plan_time timestamptz, reason text, through timestamptz DEFAULT NULL,
    scope_kind text DEFAULT NULL, scope_id text DEFAULT NULL, requested_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    requester  text := coalesce(requested_by, session_user);
    definition {schema}.jobs := {schema}_internal.lock_job(job);
    last       timestamptz := coalesce(through, plan_time);
    kind       text := CASE WHEN scope_id IS NULL THEN scope_kind ELSE coalesce(scope_kind, definition.scope_kind) END;
    reached    timestamptz := {schema}_internal.lock_schedules(job, kind, scope_id);
    other      {schema}.planned_skips;
    made       bigint;
    outcome    text := 'unchanged';
BEGIN
    IF scope_id IS NOT NULL AND reached IS NULL THEN
        PERFORM {schema}_internal.raise_unknown_scope(job, kind, scope_id);
    END IF;
    PERFORM {schema}_internal.check_skip(definition, kind, scope_id, plan_time, last, reason);
    IF plan_time <= reached THEN
        RAISE EXCEPTION 'job %: plan_time % is already reached; planning has come to %',
                job, {schema}_internal.utc_text(plan_time), {schema}_internal.utc_text(reached)
            USING HINT = 'Give a later plan_time. An execution that has not ended can be cancelled.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    SELECT p.* INTO other FROM {schema}.planned_skips p
    WHERE p.job_name = job AND p.covered_through >= p.from_plan_time
      AND p.covered_through >= plan_time AND p.from_plan_time <= last
      AND (p.scope_id IS NULL OR skip.scope_id IS NULL OR (p.scope_kind, p.scope_id) = (kind, skip.scope_id))
    ORDER BY p.id LIMIT 1;
    IF other.from_plan_time <= plan_time AND other.covered_through >= last
       AND (other.scope_id IS NULL OR (other.scope_kind, other.scope_id) = (kind, skip.scope_id)) THEN
        made := other.id;
    ELSIF FOUND THEN
        RAISE EXCEPTION 'job %: planned skip % skips % to % already', job, other.id,
                {schema}_internal.utc_text(other.from_plan_time), {schema}_internal.utc_text(other.covered_through)
            USING DETAIL = other.reason,
                  HINT = format('Give plan_times outside of it, or withdraw it first with {schema}.unskip(%s).', other.id),
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF made IS NULL THEN
        outcome := 'done';
        INSERT INTO {schema}.planned_skips
            (job_name, scope_kind, scope_id, from_plan_time, through_plan_time, reason, requested_by)
        VALUES (job, kind, skip.scope_id, plan_time, last, reason, requester)
        RETURNING id INTO made;
        PERFORM {schema}_internal.wake_schedules(job, kind, scope_id);
    END IF;
    PERFORM {schema}_internal.record_action('skip', 'job', job, requester, outcome, job,
        arguments => jsonb_build_object('skip_id', made, 'plan_time', plan_time, 'through', last,
                                        'scope_kind', kind, 'scope_id', scope_id),
        reason => reason);
    RETURN made;
END $$;
COMMENT ON FUNCTION {schema}.skip(text, timestamptz, text, timestamptz, text, text, text) IS 'Decides that the plan_times of a job from plan_time through the given last one (NULL: only that one) do not run, and returns the id of the planned skip: that of an earlier one, if it contains all of them. scope_id NULL: in all scopes. When they are due, each becomes a skip with the reason operator. The first one must be later than what is planned already. Instants that are not plan_times have no effect. Waits for the locks of the job and of its schedules (lock_timeout).';

-- Operator functions: planned pauses, and pauses of many jobs. Lock: the pause. The edits of its jobs follow in
-- transactions of their own (begin_pauses, settle_pauses), so an operator never waits for the lock of a job.

CREATE OR REPLACE FUNCTION {schema}_internal.check_pause(pause {schema}.pauses, at timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    bad text := CASE
        WHEN pause.reason !~ '[^[:space:]]' OR pause.reason IS NULL THEN 'reason: it is empty'
        WHEN length(pause.reason) > 2000 THEN 'reason: it is longer than 2000 characters'
        WHEN pause.queue = '' THEN 'queue: it is empty'
        WHEN pause.owner = '' THEN 'owner: it is empty'
        WHEN jsonb_typeof(pause.labels) <> 'object' OR pause.labels = '{}'
            THEN 'labels: it is not a JSON object with at least one label'
        WHEN NOT isfinite(pause.from_at) OR pause.from_at > at + interval '36525 days'
            THEN format('from %s: it is more than 100 years ahead', {schema}_internal.utc_text(pause.from_at))
        WHEN NOT isfinite(pause.until_at) OR pause.until_at > at + interval '36525 days'
            THEN format('until %s: it is more than 100 years ahead', {schema}_internal.utc_text(pause.until_at))
        WHEN pause.from_at < at
            THEN format('from %s: it is in the past; the database''s clock is at %s', {schema}_internal.utc_text(pause.from_at), {schema}_internal.utc_text(at))
        WHEN pause.until_at <= pause.from_at
            THEN format('until %s: it is not after from %s', {schema}_internal.utc_text(pause.until_at), {schema}_internal.utc_text(pause.from_at))
    END;
BEGIN
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'pause: %', bad
            USING HINT = 'Give a reason, a future from (by default now), and an until after it (by default: until it is ended). Select by job, queue, owner or labels, such as {"tier": "batch"}; without any of them, every job is paused.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_pause({schema}.pauses, timestamptz) IS 'Raises unless a pause can be planned so at this instant.';

CREATE OR REPLACE FUNCTION {schema}_internal.pause_arguments(pause {schema}.pauses) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('pause', pause.id, 'job', pause.job_name, 'queue', pause.queue, 'owner', pause.owner,
                              'labels', pause.labels, 'from', pause.from_at, 'until', pause.until_at)
$$;
COMMENT ON FUNCTION {schema}_internal.pause_arguments({schema}.pauses) IS 'Returns what the audit trail keeps of a pause.';

CREATE OR REPLACE FUNCTION {schema}.plan_pause(
    reason text, begins timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, job text DEFAULT NULL,
    queue text DEFAULT NULL, owner text DEFAULT NULL, labels jsonb DEFAULT NULL, requested_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    at      timestamptz := {schema}.db_clock();
    planned {schema}.pauses;
BEGIN
    planned.job_name := job;
    planned.queue := queue;
    planned.owner := owner;
    planned.labels := labels;
    planned.from_at := coalesce(begins, at);
    planned.until_at := nullif(until, 'infinity');
    planned.reason := reason;
    planned.requested_by := coalesce(requested_by, session_user);
    planned.created_at := at;
    PERFORM {schema}_internal.check_pause(planned, at);
    IF NOT EXISTS (SELECT FROM {schema}.jobs j WHERE j.name = job) AND job IS NOT NULL THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    END IF;
    planned.id := nextval('{schema}.pause_id');
    INSERT INTO {schema}.pauses SELECT planned.*;
    PERFORM {schema}_internal.record_action('plan_pause', 'pause', planned.id::text, requested_by, 'done', job,
        arguments => {schema}_internal.pause_arguments(planned), reason => reason);
    PERFORM pg_notify('{schema}', 'jobs');
    RETURN planned.id;
END $$;
COMMENT ON FUNCTION {schema}.plan_pause(text, timestamptz, timestamptz, text, text, text, jsonb, text) IS 'Plans a pause of the jobs that are selected by name, queue, owner and labels, all of which have to match; without any, of every job. Returns its id. begins: NULL is now. until: NULL is until end_pause. No plan_time of its jobs that is due from begins up to and including until starts, although replicas begin the pause only with their next claim. The commit has to be before begins; otherwise the jobs are paused a moment later. Jobs that are added or edited during the pause, and match, are paused as well.';

CREATE OR REPLACE FUNCTION {schema}_internal.lock_pause(pause_id bigint) RETURNS {schema}.pauses LANGUAGE plpgsql AS $$
DECLARE
    held {schema}.pauses;
BEGIN
    SELECT p.* INTO held FROM {schema}.pauses p WHERE p.id = pause_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'pause % does not exist', pause_id
            USING HINT = 'It may have been pruned after retention. To list the pauses, run SELECT * FROM {schema}.pause_status.',
                  ERRCODE = 'no_data_found';
    END IF;
    RETURN held;
END $$;
COMMENT ON FUNCTION {schema}_internal.lock_pause(bigint) IS 'Locks and returns a pause. Raises if it does not exist.';

CREATE OR REPLACE FUNCTION {schema}.change_pause(
    pause_id bigint, begins timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, reason text DEFAULT NULL,
    requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    held    {schema}.pauses := {schema}_internal.lock_pause(pause_id);
    at      timestamptz := {schema}.db_clock();
    changed {schema}.pauses := held;
BEGIN
    IF held.begun_at IS NOT NULL OR held.from_at <= at OR held.ended_at IS NOT NULL THEN
        RAISE EXCEPTION 'pause %: it %', pause_id,
                CASE WHEN held.ended_at IS NULL THEN 'began at ' || {schema}_internal.utc_text(held.from_at)
                     ELSE 'ended at ' || {schema}_internal.utc_text(held.ended_at) END
            USING HINT = 'Only a pause that has not begun can be changed. To end one that is in force, use {schema}.end_pause; then plan another.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    changed.from_at := coalesce(begins, held.from_at);
    changed.until_at := CASE WHEN until = 'infinity' THEN NULL ELSE coalesce(until, held.until_at) END;
    changed.reason := coalesce(reason, held.reason);
    PERFORM {schema}_internal.check_pause(changed, at);
    UPDATE {schema}.pauses p SET from_at = changed.from_at, until_at = changed.until_at, reason = changed.reason
    WHERE p.id = pause_id AND held <> changed;
    PERFORM {schema}_internal.record_action('change_pause', 'pause', pause_id::text, requested_by,
        CASE WHEN held = changed THEN 'unchanged' ELSE 'done' END, held.job_name,
        arguments => {schema}_internal.pause_arguments(changed), reason => changed.reason);
    PERFORM pg_notify('{schema}', 'jobs');
    RETURN held <> changed;
END $$;
COMMENT ON FUNCTION {schema}.change_pause(bigint, timestamptz, timestamptz, text, text) IS 'Changes a planned pause that has not begun. NULL changes nothing; until infinity: until it is ended. Returns whether anything changed. Raises if the pause has begun or ended.';

CREATE OR REPLACE FUNCTION {schema}.end_pause(pause_id bigint, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    requester text := coalesce(requested_by, session_user);
    held      {schema}.pauses := {schema}_internal.lock_pause(pause_id);
    at        timestamptz := {schema}.db_clock();
    open      boolean := held.ended_at IS NULL AND coalesce(held.until_at > at, true);
BEGIN
    IF open THEN
        UPDATE {schema}.pauses p SET ended_at = at, ended_by = requester WHERE p.id = pause_id;
        IF held.begun_at IS NOT NULL THEN
            PERFORM {schema}_internal.unsettle_jobs(held, at, false, requester);
        END IF;
        PERFORM pg_notify('{schema}', 'jobs');
    END IF;
    PERFORM {schema}_internal.record_action('end_pause', 'pause', pause_id::text, requested_by,
        CASE WHEN open THEN 'done' ELSE 'unchanged' END, held.job_name,
        arguments => {schema}_internal.pause_arguments(held), reason => held.reason);
    RETURN open;
END $$;
COMMENT ON FUNCTION {schema}.end_pause(bigint, text) IS 'Ends a pause for all of its jobs, or withdraws one that has not begun. A job stays paused while another pause selects it. Replicas resume the jobs with their next claim; plan_times that were due during the pause are skipped. Returns false if the pause was over already.';

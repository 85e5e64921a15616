-- The switch of an observed job from another scheduler to replicas, and back. Lock: the row of the job; the triggers on
-- jobs then lock its schedules and create the revision.

CREATE OR REPLACE FUNCTION {schema}.preview_adopt(
    job text, at timestamptz, back boolean DEFAULT false,
    OUT adopted_at timestamptz, OUT returned_at timestamptz, OUT moves boolean, OUT withdrawn timestamptz[])
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    definition {schema}.jobs := (SELECT j FROM {schema}.jobs j WHERE j.name = job);
    now_       timestamptz := {schema}.db_clock();
    is_own     boolean := coalesce(definition.adopted_at <= now_, false) AND coalesce(definition.returned_at > now_, true);
    problem    text := CASE
        WHEN definition.retired_at IS NOT NULL THEN format('it is retired (since %s)', {schema}_internal.utc_text(definition.retired_at))
        WHEN definition.handler = 'observed' THEN 'it has no handler, so no replica can run it'
        WHEN NOT definition.observed THEN 'it is not observed: replicas fire it already'
        WHEN back AND (definition.adopted_at IS NULL OR definition.returned_at <= greatest(definition.adopted_at, now_)) THEN
            'it is not adopted: another scheduler fires it already'
        WHEN is_own AND NOT back AND definition.returned_at IS NULL THEN
            format('replicas fire it already, since %s', {schema}_internal.utc_text(definition.adopted_at))
        WHEN is_own AND NOT back AND at > definition.returned_at THEN
            format('it returns to the other scheduler at %s, which is before that', {schema}_internal.utc_text(definition.returned_at))
        END;
BEGIN
    IF definition.name IS NULL THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'job %: %', job, problem
            USING HINT = 'Only an observed job that also has a handler moves between schedulers: declare it with observed = true and, for example, a command.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    -- The edit must be committed before the switch, so that both schedulers know it in time.
    IF NOT at > now_ + interval '5 seconds' OR at > now_ + interval '36525 days' OR at IS NULL THEN
        RAISE EXCEPTION 'job %: the switch at % must be between 5 s and 100 years ahead; the clock of the database is at %',
                job, coalesce({schema}_internal.utc_text(at), 'NULL'), {schema}_internal.utc_text(now_)
            USING HINT = 'Give an instant in this range.', ERRCODE = 'invalid_parameter_value';
    END IF;
    adopted_at := CASE WHEN back OR is_own THEN definition.adopted_at ELSE at END;
    returned_at := CASE WHEN back THEN at END;
    moves := CASE WHEN back THEN at > definition.adopted_at ELSE NOT is_own END;
    withdrawn := array_remove(ARRAY[
        CASE WHEN back AND NOT moves THEN definition.adopted_at END,
        CASE WHEN NOT (back AND moves) AND definition.returned_at > greatest(definition.adopted_at, now_)
            THEN definition.returned_at END], NULL);
END $$;
COMMENT ON FUNCTION {schema}.preview_adopt(text, timestamptz, boolean) IS 'Returns what adopt() would write with these arguments, or raises the error with which it would refuse them. moves: the job moves at this instant; false: the side that fires the job now keeps it. withdrawn: the instants of the future switches that they withdraw, in order: with back the adoption and the return after it, otherwise the return. A switch of the same direction that moves to another instant is not withdrawn.';

CREATE OR REPLACE FUNCTION {schema}.adopt(
    job text, at timestamptz, back boolean DEFAULT false, reason text DEFAULT NULL, requested_by text DEFAULT NULL,
    OUT revision bigint, OUT moves boolean, OUT withdrawn timestamptz[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    requester  text := coalesce(requested_by, session_user);
    definition {schema}.jobs := {schema}_internal.lock_job(job);
    planned    record;
    began      boolean;
BEGIN
    SELECT p.* INTO planned FROM {schema}.preview_adopt(job, at, back) p;
    moves := planned.moves;
    withdrawn := planned.withdrawn;
    began := {schema}_internal.begin_action();
    UPDATE {schema}.jobs j
    SET adopted_at = planned.adopted_at, returned_at = planned.returned_at, edited_by = requester
    WHERE j.name = job
    RETURNING j.revision INTO revision;
    UPDATE {schema}.job_revisions r SET reason = coalesce(adopt.reason, r.reason)
    WHERE (r.job_name, r.revision) = (job, adopt.revision) AND adopt.revision > definition.revision;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('adopt', 'job', job, requester,
        CASE WHEN revision = definition.revision THEN 'unchanged' ELSE 'done' END, job, nullif(revision, definition.revision),
        arguments => jsonb_build_object('at', at, 'back', back), reason => reason);
END $$;
COMMENT ON FUNCTION {schema}.adopt(text, timestamptz, boolean, text, text) IS 'Makes replicas fire the plan_times of an observed job from this instant on, which must be at least 5 s ahead. The other scheduler keeps the earlier ones. back: the other scheduler fires the plan_times from this instant on again. The opposite call at the instant of a future switch, or at an earlier one, withdraws this switch. An adoption also withdraws a future return. Returns the revision, and moves and withdrawn as preview_adopt() does. The start of a run decides its side, so choose an instant between two plan_times, as cronledger adopt does.';

CREATE OR REPLACE FUNCTION {schema}_internal.replica_times(
    revision {schema}.job_revisions, OUT first timestamptz, OUT until timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN d ->> 'handler' = 'observed' OR revision.state = 'retired' THEN NULL
                WHEN (d -> 'observed')::boolean THEN (d ->> 'adopted_at')::timestamptz
                ELSE revision.effective_from END,
           (d ->> 'returned_at')::timestamptz
    FROM (SELECT revision.definition AS d) x
$$;
COMMENT ON FUNCTION {schema}_internal.replica_times({schema}.job_revisions) IS 'Returns from when on, and until when, replicas fire plan_times of this revision. first NULL: never; until NULL: without end.';

CREATE OR REPLACE FUNCTION {schema}.hand_over(
    job text, started_at timestamptz DEFAULT NULL,
    OUT runs boolean, OUT adoptable boolean, OUT replicas_from timestamptz, OUT replicas_until timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    start  timestamptz := coalesce(started_at, {schema}.db_clock());
    owner  {schema}.job_revisions;
    newest {schema}.job_revisions;
BEGIN
    runs := true; adoptable := false;
    IF NOT EXISTS (SELECT FROM {schema}.job_revisions r
                   WHERE r.job_name = job AND {schema}_internal.may_be_observed(r.definition)) THEN
        RETURN;
    END IF;
    SELECT r.* INTO owner FROM {schema}.job_revisions r
    WHERE r.job_name = job AND r.effective_from < start ORDER BY r.revision DESC LIMIT 1;
    SELECT r.* INTO newest FROM {schema}.job_revisions r WHERE r.job_name = job ORDER BY r.revision DESC LIMIT 1;
    SELECT NOT coalesce(t.first <= start AND (t.until > start OR t.until IS NULL), false) INTO runs
    FROM {schema}_internal.replica_times(owner) t;
    adoptable := newest.definition ->> 'handler' <> 'observed';
    SELECT t.first, t.until INTO replicas_from, replicas_until FROM {schema}_internal.replica_times(newest) t;
END $$;
COMMENT ON FUNCTION {schema}.hand_over(text, timestamptz) IS 'Returns which side runs a job that another scheduler started at this instant (NULL: now). runs: true, the other scheduler does; false, replicas do. It is true for a job that was not adopted, and for one that is unknown, retired or deleted. adoptable: the job has a handler for replicas. replicas_from and replicas_until: when replicas fire the job, as decided now; NULL: never, and without end. cronledger observe asks it before it runs the command of a job that can be adopted.';

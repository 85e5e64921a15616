-- A planned pause begins in two steps. begin_pauses notes the jobs that it selects; no claim plans or starts anything of
-- these from then on. settle_pauses edits them, some in each transaction, and a job that another transaction has
-- locked waits for a later call without delay for the others.
-- Between from_at and the COMMIT of begin_pauses nobody claims: claim_look plans at most up to the microsecond before
-- the next from_at, and returns without a claim after it. So nothing that is due at from_at or later was planned by
-- the definition that was active, and the revision that pauses the job takes effect in the microsecond before.

-- Lock: the pauses by id, waiting, so that one replica begins them. Another one then finds that they have begun.
CREATE OR REPLACE FUNCTION {schema}_internal.begin_pauses() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pause {schema}.pauses;
    began bigint := 0;
BEGIN
    FOR pause IN SELECT p.* FROM {schema}.pauses p
                 WHERE p.begun_at IS NULL AND p.ended_at IS NULL AND p.from_at <= {schema}.db_clock()
                 ORDER BY p.id FOR UPDATE LOOP
        UPDATE {schema}.pauses p SET begun_at = {schema}.db_clock() WHERE p.id = pause.id;
        PERFORM {schema}_internal.unsettle_jobs(pause, pause.from_at, true, pause.requested_by);
        began := began + 1;
    END LOOP;
    RETURN began;
END $$;
COMMENT ON FUNCTION {schema}_internal.begin_pauses() IS 'Begins the planned pauses that are due, and returns how many. Their jobs are paused by settle_pauses; claims leave them out until then.';

-- A statement of its own after the lock of the pause, so that it finds the jobs that were edited meanwhile.
CREATE OR REPLACE FUNCTION {schema}_internal.unsettle_jobs(
    pause {schema}.pauses, at timestamptz, begins boolean, requester text)
RETURNS void LANGUAGE sql VOLATILE AS $$
    INSERT INTO {schema}.unsettled_pauses (job_name, at, begins, requested_by)
    SELECT j.name, at, begins, requester FROM {schema}.jobs j
    WHERE j.retired_at IS NULL AND {schema}_internal.pause_covers(pause, j)
$$;
COMMENT ON FUNCTION {schema}_internal.unsettle_jobs({schema}.pauses, timestamptz, boolean, text) IS 'Notes the jobs of a pause that begins or ends at this instant, so that settle_pauses edits them.';

-- Until then, the revisions of these jobs do not state the pause.
CREATE OR REPLACE FUNCTION {schema}_internal.jobs_to_settle() RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT u.job_name FROM {schema}.unsettled_pauses u
    UNION ALL
    SELECT j.name FROM {schema}.pauses p JOIN {schema}.jobs j ON {schema}_internal.pause_covers(p, j)
    WHERE p.begun_at IS NULL AND p.ended_at IS NULL AND p.from_at <= {schema}.db_now();
END $$;
COMMENT ON FUNCTION {schema}_internal.jobs_to_settle() IS 'Returns the jobs of pauses that have begun or ended, and that settle_pauses has not edited yet.';

-- Locks: jobs by name, SKIP LOCKED, then (by trigger) their schedules by key, then the open pauses by id, for share.
CREATE OR REPLACE FUNCTION {schema}_internal.settle_pauses(most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    began   boolean := {schema}_internal.begin_action();
    job     text;
    mark    {schema}.unsettled_pauses;
    settled text[] := '{}';
    edited  bigint := 0;
BEGIN
    LOCK TABLE {schema}.jobs IN ROW EXCLUSIVE MODE;  -- as lock_job
    DELETE FROM {schema}.unsettled_pauses u WHERE NOT EXISTS (SELECT FROM {schema}.jobs j WHERE j.name = u.job_name);
    FOR job IN SELECT j.name FROM {schema}.jobs j
               WHERE j.name IN (SELECT u.job_name FROM {schema}.unsettled_pauses u)
               ORDER BY j.name LIMIT most FOR NO KEY UPDATE SKIP LOCKED LOOP
        FOR mark IN SELECT u.* FROM {schema}.unsettled_pauses u WHERE u.job_name = job ORDER BY u.at, u.id LOOP
            UPDATE {schema}.unsettled_pauses u SET xact = pg_current_xact_id() WHERE u.id = mark.id;
            UPDATE {schema}.jobs j SET edited_by = mark.requested_by WHERE j.name = job AND j.retired_at IS NULL;
            DELETE FROM {schema}.unsettled_pauses u WHERE u.id = mark.id;
        END LOOP;
        settled := settled || job;
        edited := edited + greatest(1, (SELECT count(*) FROM {schema}.schedules s WHERE s.job_name = job));
        EXIT WHEN edited >= most;
    END LOOP;
    -- A job may have been paused by hand after the last of these instants. All pauses are locked first, in the order of
    -- begin_pauses, because compare_pauses locks those of one job after the other.
    PERFORM FROM {schema}.pauses p WHERE p.ended_at IS NULL ORDER BY p.id FOR SHARE;
    PERFORM {schema}_internal.compare_pauses(u.name) FROM unnest(settled) u(name);
    PERFORM {schema}_internal.end_action(began);
    RETURN cardinality(settled);
END $$;
COMMENT ON FUNCTION {schema}_internal.settle_pauses(integer) IS 'Edits the jobs whose pauses have begun or ended, and returns how many. most: it stops after the job with which it has edited this many schedules; a job without schedules counts as one. A job that is locked is left to a later call.';

CREATE OR REPLACE FUNCTION {schema}_internal.take_up_pauses() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM {schema}.pauses p
               WHERE p.begun_at IS NULL AND p.ended_at IS NULL AND p.from_at <= {schema}.db_clock()) THEN
        PERFORM {schema}_internal.begin_pauses();
    END IF;
    IF EXISTS (SELECT FROM {schema}.unsettled_pauses) THEN
        PERFORM {schema}_internal.settle_pauses(1000);
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.take_up_pauses() IS 'Begins and settles the pauses that are due. For workers in other languages, before they lock anything.';

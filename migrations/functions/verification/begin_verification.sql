-- The record of each run of verify. A run is recorded in two transactions of their own, because its snapshots
-- are read-only, and because a run that was killed must be visible as one that has not ended.
-- Lock: rows of verification_runs, after none of the tables of the lock order.

CREATE OR REPLACE FUNCTION {schema}_internal.begin_verification(
    job text, from_plan_time timestamptz, to_plan_time timestamptz, version text, requested_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    made bigint;
BEGIN
    INSERT INTO {schema}.verification_runs AS r
        (job_name, from_plan_time, to_plan_time, requested_by, version, started_at)
    VALUES (job, from_plan_time, to_plan_time, coalesce(requested_by, session_user), version, {schema}.db_clock())
    RETURNING r.id INTO made;
    -- Runs of one job have a limit of their own, so that they do not push out the runs of all jobs.
    DELETE FROM {schema}.verification_runs r
    WHERE (r.job_name IS NULL) = (job IS NULL) AND r.id <= (
        SELECT k.id FROM {schema}.verification_runs k WHERE (k.job_name IS NULL) = (job IS NULL)
        ORDER BY k.id DESC OFFSET 1000 LIMIT 1);
    RETURN made;
END $$;
COMMENT ON FUNCTION {schema}_internal.begin_verification(text, timestamptz, timestamptz, text, text) IS 'Records the beginning of a run of verify on this job (NULL: all jobs) and range, and deletes all but the newest 1,000 runs of its kind. Returns the id of the run.';

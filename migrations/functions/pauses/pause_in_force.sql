-- What a pause covers, and the state of a job that follows from the pauses. A wide pause covers the jobs of a queue, of
-- an owner, with labels, or all jobs. A pause of one job has job_name only; it is written with the row of the job.

CREATE OR REPLACE FUNCTION {schema}_internal.pause_covers(pause {schema}.pauses, job {schema}.jobs) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT (pause.job_name IS NULL OR pause.job_name = job.name)
       AND (pause.queue IS NULL OR pause.queue = job.queue)
       AND (pause.owner IS NULL OR coalesce(pause.owner = job.owner, false))
       AND (pause.labels IS NULL OR coalesce(job.labels @> pause.labels, false))
$$;
COMMENT ON FUNCTION {schema}_internal.pause_covers({schema}.pauses, {schema}.jobs) IS 'Returns whether a pause selects a job: each part of its selection that is not NULL matches.';

CREATE OR REPLACE FUNCTION {schema}_internal.is_wide(pause {schema}.pauses) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT pause.job_name IS NULL OR coalesce(pause.queue, pause.owner, pause.labels::text) IS NOT NULL
$$;
COMMENT ON FUNCTION {schema}_internal.is_wide({schema}.pauses) IS 'Returns whether a pause may cover more than one job. resume(job) ends only pauses of one job.';

-- One row, or none. The pause that ends last gives the reason. So it is also the one that is named for a plan_time to
-- come that several pauses skip: in upcoming, job_overview, list_next_hour.sql and explain/firings.py.
CREATE OR REPLACE FUNCTION {schema}_internal.pause_in_force(job {schema}.jobs, at timestamptz)
RETURNS TABLE (paused_at timestamptz, paused_by text, paused_reason text, paused_until timestamptz)
LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT min(p.from_at), (array_agg(p.requested_by ORDER BY p.until_at DESC NULLS FIRST, p.id))[1],
           (array_agg(p.reason ORDER BY p.until_at DESC NULLS FIRST, p.id))[1],
           CASE WHEN bool_and(p.until_at IS NOT NULL) THEN max(p.until_at) END
    FROM {schema}.pauses p
    WHERE p.begun_at IS NOT NULL AND p.from_at <= at AND p.ended_at IS NULL AND coalesce(p.until_at > at, true)
      AND {schema}_internal.pause_covers(p, job)
    HAVING count(*) > 0
$$;
COMMENT ON FUNCTION {schema}_internal.pause_in_force({schema}.jobs, timestamptz) IS 'Returns the union of the pauses that are in force for a job at an instant: the columns of jobs that state it. No row: none is in force.';

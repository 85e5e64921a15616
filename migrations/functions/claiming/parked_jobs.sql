-- A loose scan: one probe of the index for each job.
CREATE OR REPLACE FUNCTION {schema}_internal.parked_jobs(reason text)
RETURNS TABLE (job_name text) LANGUAGE sql STABLE ROWS 10 AS $$
    WITH RECURSIVE n AS (
        (SELECT s.job_name FROM {schema}.schedules s WHERE s.parked = reason
         ORDER BY s.job_name LIMIT 1)
        UNION ALL
        SELECT (SELECT s.job_name FROM {schema}.schedules s
                WHERE s.parked = reason AND s.job_name > n.job_name ORDER BY s.job_name LIMIT 1)
        FROM n WHERE n.job_name IS NOT NULL
    ) SELECT n.job_name FROM n WHERE n.job_name IS NOT NULL
$$;
COMMENT ON FUNCTION {schema}_internal.parked_jobs(text) IS 'Lists the jobs that have schedules parked for this reason: waiting, limit, no_runner or spec_error.';

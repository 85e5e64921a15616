CREATE OR REPLACE VIEW {schema}.lateness AS
SELECT e.job_name, date_trunc('hour', e.due_at, 'UTC') AS hour, count(*) AS count,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY e.late_ms) AS p50_ms,
       percentile_cont(0.99) WITHIN GROUP (ORDER BY e.late_ms) AS p99_ms, max(e.late_ms) AS max_ms
FROM (
    SELECT x.job_name, x.due_at,
           (extract(epoch FROM x.started_at - x.due_at) * 1000)::double precision AS late_ms
    FROM {schema}.executions x
    WHERE x.plan_time > {schema}.db_now() - interval '7 days' AND x.trigger = 'schedule'
      AND x.attempt = 1 AND x.started_at IS NOT NULL AND x.gated_at IS NULL
) e
GROUP BY 1, 2;
COMMENT ON VIEW {schema}.lateness IS 'How long after due_at scheduled executions started, per job and hour, plan_times of the last 7 days. Executions with more than one attempt are left out, because their first start is not kept, and so are those that waited for required jobs.';
COMMENT ON COLUMN {schema}.lateness.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.lateness.hour IS 'Hour (UTC) in which due_at lies.';
COMMENT ON COLUMN {schema}.lateness.count IS 'Number of executions.';
COMMENT ON COLUMN {schema}.lateness.p50_ms IS 'Half of them started within this number of milliseconds.';
COMMENT ON COLUMN {schema}.lateness.p99_ms IS '99 of 100 started within this number of milliseconds.';
COMMENT ON COLUMN {schema}.lateness.max_ms IS 'The greatest delay, in milliseconds.';

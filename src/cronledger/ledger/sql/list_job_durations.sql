-- Lists the median and the 95th percentile of the durations of these jobs in milliseconds: of the newest max_rows
-- executions since an instant in each of the first max_scopes scopes. No lock. Zero rows for a job: none of these
-- executions has a duration.
SELECT n.job_name, percentile_cont(0.5) WITHIN GROUP (ORDER BY r.duration_ms) AS p50,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY r.duration_ms) AS p95
FROM unnest(%(names)s::text[]) n(job_name)
CROSS JOIN LATERAL (
    SELECT s.scope_kind, s.scope_id FROM {schema}.verify_schedules s WHERE s.job_name = n.job_name
    ORDER BY s.scope_kind, s.scope_id LIMIT %(max_scopes)s
) s
CROSS JOIN LATERAL (
    SELECT e.duration_ms FROM {schema}.execution_status e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (n.job_name, s.scope_kind, s.scope_id)
      AND e.plan_time >= %(since)s::timestamptz
    ORDER BY e.plan_time DESC LIMIT %(max_rows)s
) r
WHERE r.duration_ms IS NOT NULL
GROUP BY n.job_name

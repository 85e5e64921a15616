-- Lists the scopes that are planned, by job and scope, with what decides their plan_times, and the median duration of
-- the successes among their last 20 executions (NULL: none). No lock. Zero rows: nothing is planned.
SELECT s.job_name, s.scope_kind, s.scope_id, j.schedule, j.timezone, j.day_or, j.dst_gap, j.dst_fold, j.starts_at,
       j.ends_at, j.calendar, j.calendar_revision, j.on_excluded, j.after, j.schedule_delay, j.jitter, j.overlap, d.median_ms
FROM (
    SELECT v.job_name, v.scope_kind, v.scope_id
    FROM {schema}.job_details x
    JOIN {schema}.verify_schedules v ON v.job_name = x.name
    WHERE x.schedule IS NOT NULL AND x.retired_at IS NULL AND x.spec_error IS NULL
      AND NOT (x.paused_at IS NOT NULL AND coalesce(x.paused_until > {schema}.db_now(), true))
      AND (v.retired_at IS NULL OR v.returned_at IS NOT NULL)
    ORDER BY v.job_name, v.scope_kind, v.scope_id
    LIMIT %(max_rows)s
) s
JOIN {schema}.job_details j ON j.name = s.job_name
LEFT JOIN LATERAL (
    SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY n.duration_ms) AS median_ms
    FROM (
        SELECT e.status, e.duration_ms FROM {schema}.execution_status e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
        ORDER BY e.plan_time DESC LIMIT 20
    ) n
    WHERE n.status = 'SUCCESS'
) d ON true
ORDER BY s.job_name, s.scope_kind, s.scope_id

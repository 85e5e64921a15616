-- Lists the scopes of these jobs that a list of jobs shows, at most max_scopes of each job: those of the newest
-- max_failures failures of the last day of all jobs, and then the first ones by kind and id. `streak`: the failures in a
-- row among the last 50 executions that ended, which began to fail at `failing_since`. No lock. Zero rows for a job: it has no scope.
SELECT c.job_name, c.scope_kind, c.scope_id, s.streak, s.failing_since
FROM (
    SELECT f.job_name, f.scope_kind, f.scope_id,
           row_number() OVER (PARTITION BY f.job_name
                              ORDER BY bool_or(f.has_failed) DESC, f.scope_kind, f.scope_id) AS place
    FROM (
        SELECT n.job_name, v.scope_kind, v.scope_id, false AS has_failed
        FROM unnest(%(names)s::text[]) n(job_name)
        CROSS JOIN LATERAL (
            SELECT x.scope_kind, x.scope_id FROM {schema}.verify_schedules x
            WHERE x.job_name = n.job_name AND (x.retired_at IS NULL OR x.returned_at IS NOT NULL)
            ORDER BY x.scope_kind, x.scope_id LIMIT %(max_scopes)s
        ) v
        UNION ALL
        SELECT r.job_name, r.scope_kind, r.scope_id, true
        FROM (
            SELECT x.job_name, x.scope_kind, x.scope_id FROM {schema}.recent_failures x
            WHERE x.finished_at > {schema}.db_now() - interval '1 day'
            ORDER BY x.finished_at DESC LIMIT %(max_failures)s
        ) r
        WHERE r.job_name = ANY (%(names)s::text[])
          AND EXISTS (
            SELECT FROM {schema}.verify_schedules v
            WHERE (v.job_name, v.scope_kind, v.scope_id) = (r.job_name, r.scope_kind, r.scope_id)
              AND (v.retired_at IS NULL OR v.returned_at IS NOT NULL))
    ) f
    GROUP BY f.job_name, f.scope_kind, f.scope_id
) c
LEFT JOIN LATERAL (  -- 50 rows are read only of those that have just failed
    SELECT CASE n.status WHEN 'FAILED' THEN 50 ELSE 0 END AS max_rows
    FROM (SELECT x.status FROM {schema}.execution_status x
          WHERE (x.job_name, x.scope_kind, x.scope_id) = (c.job_name, c.scope_kind, c.scope_id)
            AND x.status IN ('SUCCESS', 'FAILED')
          ORDER BY x.plan_time DESC LIMIT 1) n
) m ON true
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE e.is_streak) AS streak,
           min(e.finished_at) FILTER (WHERE e.is_streak) AS failing_since
    FROM (SELECT n.finished_at, bool_and(n.status = 'FAILED') OVER (ORDER BY n.plan_time DESC) AS is_streak
          FROM (SELECT x.plan_time, x.status, x.finished_at FROM {schema}.execution_status x
                WHERE (x.job_name, x.scope_kind, x.scope_id) = (c.job_name, c.scope_kind, c.scope_id)
                  AND x.status IN ('SUCCESS', 'FAILED')
                ORDER BY x.plan_time DESC LIMIT coalesce(m.max_rows, 0)) n) e
) s
WHERE c.place <= %(max_scopes)s
ORDER BY c.job_name, c.scope_kind, c.scope_id
LIMIT %(max_rows)s

-- Lists the jobs of which the last execution of a scope that ended is FAILED: the scope that fails for longest, and
-- the number of such scopes. It looks at the first `most_scopes` scopes by job and scope, and at those of the 500
-- failures that ended last within a week. `failing_since`: the first failure after the last SUCCESS among the last 100
-- executions. A NULL owner or label does not restrict. No lock. Zero rows: none of them is failing.
SELECT y.* FROM (
SELECT f.job_name, f.scope_kind, f.scope_id, l.id, l.plan_time, l.error_code, l.error_msg, l.next_attempt_at,
       l.finished_at, s.failures, s.failing_since, j.timezone, j.owner,
       count(*) OVER (PARTITION BY f.job_name) AS scopes,
       row_number() OVER (PARTITION BY f.job_name ORDER BY s.failing_since, f.scope_kind, f.scope_id) AS place
FROM (
    (SELECT v.job_name, v.scope_kind, v.scope_id FROM {schema}.verify_schedules v
     WHERE v.retired_at IS NULL OR v.returned_at IS NOT NULL
     ORDER BY v.job_name, v.scope_kind, v.scope_id LIMIT %(most_scopes)s)
    UNION
    (SELECT x.job_name, x.scope_kind, x.scope_id FROM {schema}.recent_failures x
     ORDER BY x.finished_at DESC LIMIT 500)
) f
CROSS JOIN LATERAL (
    SELECT e.id, e.plan_time, e.status, e.error_code, e.error_msg, e.next_attempt_at, e.finished_at
    FROM {schema}.execution_status e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (f.job_name, f.scope_kind, f.scope_id)
      AND e.status IN ('SUCCESS', 'FAILED')
    ORDER BY e.plan_time DESC LIMIT 1
) l
CROSS JOIN LATERAL (  -- 100 rows are read only of those that have failed ten times
    SELECT CASE WHEN bool_and(n.status = 'FAILED') THEN 100 ELSE 10 END AS max_rows
    FROM (SELECT x.status FROM {schema}.execution_status x
          WHERE (x.job_name, x.scope_kind, x.scope_id) = (f.job_name, f.scope_kind, f.scope_id)
            AND x.status IN ('SUCCESS', 'FAILED')
          ORDER BY x.plan_time DESC LIMIT 10) n
) m
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE n.is_streak) AS failures,
           min(n.finished_at) FILTER (WHERE n.is_streak) AS failing_since
    FROM (SELECT e.finished_at, bool_and(e.status = 'FAILED') OVER (ORDER BY e.plan_time DESC) AS is_streak
          FROM (SELECT x.finished_at, x.status, x.plan_time FROM {schema}.execution_status x
                WHERE (x.job_name, x.scope_kind, x.scope_id) = (f.job_name, f.scope_kind, f.scope_id)
                  AND x.status IN ('SUCCESS', 'FAILED')
                ORDER BY x.plan_time DESC LIMIT m.max_rows) e) n
) s
LEFT JOIN {schema}.job_details j ON j.name = f.job_name
WHERE l.status = 'FAILED' AND j.retired_at IS NULL
  AND (%(owner)s::text IS NULL OR j.owner = %(owner)s::text)
  AND (%(label)s::text IS NULL OR {schema}_internal.has_label(j.labels, %(label)s::text))
) y
WHERE y.place = 1
ORDER BY y.failing_since, y.job_name
LIMIT %(max_rows)s

-- Lists jobs that are not retired: first those that fail, then those in `overdue` in its
-- order, then by name. `total`: the number of all of them. For each job, the statement reads the history of at most
-- max_scopes scopes, those that were planned last, and of the scopes among the newest max_failures failures of the last
-- week. A success before the hours that are not summed up yet is found in the sums by hour. No lock. Zero rows: all jobs
-- are retired, or none exists.
WITH rolled_up AS MATERIALIZED (
    SELECT coalesce({schema}.rolled_up_before(), '-infinity') AS before
), known AS MATERIALIZED (
    SELECT d.name, d.queue, d.schedule, d.timezone, d.handler, d.owner,
           d.paused_at IS NOT NULL AND coalesce(d.paused_until > {schema}.db_now(), true) AS paused
    FROM {schema}.job_details d
    WHERE d.retired_at IS NULL
), failed AS MATERIALIZED (
    SELECT DISTINCT f.job_name, f.scope_kind, f.scope_id
    FROM (SELECT x.job_name, x.scope_kind, x.scope_id FROM {schema}.recent_failures x
          ORDER BY x.finished_at DESC LIMIT %(max_failures)s) f
), failing AS MATERIALIZED (  -- not retired; the last of its newest ten executions that ended is FAILED, or none ended
    SELECT f.job_name, f.scope_kind, f.scope_id
    FROM failed f
    CROSS JOIN LATERAL (
        SELECT (array_agg(n.status ORDER BY n.plan_time DESC) FILTER (WHERE n.status IN ('SUCCESS', 'FAILED')))[1] AS status
        FROM (SELECT e.plan_time, e.status FROM {schema}.execution_status e
              WHERE (e.job_name, e.scope_kind, e.scope_id) = (f.job_name, f.scope_kind, f.scope_id)
                AND e.plan_time <= {schema}.db_now()
              ORDER BY e.plan_time DESC LIMIT 10) n
    ) l
    WHERE l.status IS DISTINCT FROM 'SUCCESS'
      AND NOT EXISTS (SELECT FROM {schema}.verify_schedules v
                      WHERE (v.job_name, v.scope_kind, v.scope_id) = (f.job_name, f.scope_kind, f.scope_id)
                        AND v.retired_at IS NOT NULL AND v.returned_at IS NULL)
), chosen AS MATERIALIZED (
    SELECT k.*, count(*) OVER () AS total
    FROM known k
    LEFT JOIN unnest(%(overdue)s::text[]) WITH ORDINALITY o(name, place) ON o.name = k.name
    ORDER BY k.name IN (SELECT f.job_name FROM failing f) DESC, o.place, k.name
    LIMIT %(max_jobs)s
), planned AS MATERIALIZED (
    SELECT v.job_name, count(*) AS scopes,
           min(nullif(v.next_plan_time, 'infinity')) FILTER (
               WHERE v.parked IS NULL OR v.parked IN ('waiting', 'limit', 'no_runner')) AS next_plan_time
    FROM {schema}.verify_schedules v
    WHERE v.retired_at IS NULL OR v.returned_at IS NOT NULL
    GROUP BY v.job_name
), running AS MATERIALIZED (
    SELECT e.job_name, count(*) AS count FROM {schema}.execution_status e
    WHERE e.status = 'RUNNING' GROUP BY e.job_name
), looked_at AS MATERIALIZED (
    SELECT s.job_name, s.scope_kind, s.scope_id
    FROM chosen c
    CROSS JOIN LATERAL (
        SELECT v.job_name, v.scope_kind, v.scope_id FROM {schema}.verify_schedules v
        WHERE v.job_name = c.name AND (v.retired_at IS NULL OR v.returned_at IS NOT NULL)
        ORDER BY v.planned_through DESC LIMIT %(max_scopes)s
    ) s
    UNION
    SELECT f.job_name, f.scope_kind, f.scope_id FROM failing f JOIN chosen c ON c.name = f.job_name
), newest AS MATERIALIZED (
    SELECT s.job_name, s.scope_kind, s.scope_id, l.plan_time, l.status, l.finished_at
    FROM looked_at s
    CROSS JOIN LATERAL (
        SELECT e.plan_time, e.status, e.finished_at FROM {schema}.execution_status e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
          AND e.plan_time <= {schema}.db_now()
        ORDER BY e.plan_time DESC LIMIT 1
    ) l
), earlier AS MATERIALIZED (  -- only of scopes whose newest execution is not a SUCCESS
    SELECT s.job_name, coalesce(n.finished_at, o.finished_at) AS last_success_at, f.streak
    FROM newest s
    CROSS JOIN rolled_up r
    LEFT JOIN LATERAL (
        SELECT e.finished_at FROM {schema}.execution_status e
        WHERE e.status = 'SUCCESS' AND e.plan_time >= r.before AND e.plan_time <= {schema}.db_now()
          AND (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
        ORDER BY e.plan_time DESC LIMIT 1
    ) n ON true
    LEFT JOIN LATERAL (
        SELECT h.hour FROM {schema}.execution_hours h
        WHERE n.finished_at IS NULL AND h.success > 0
          AND (h.job_name, h.scope_kind, h.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
        ORDER BY h.hour DESC LIMIT 1
    ) h ON true
    LEFT JOIN LATERAL (
        SELECT e.finished_at FROM {schema}.execution_status e
        WHERE e.status = 'SUCCESS' AND e.plan_time >= h.hour AND e.plan_time < h.hour + interval '1 hour'
          AND (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
        ORDER BY e.plan_time DESC LIMIT 1
    ) o ON true
    CROSS JOIN LATERAL (  -- 120 rows are read only if there is no SUCCESS among the newest ten
        SELECT CASE WHEN count(*) FILTER (WHERE x.status = 'SUCCESS') = 0 THEN 120 ELSE 10 END AS max_rows
        FROM (SELECT e.status FROM {schema}.execution_status e
              WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
                AND e.plan_time <= {schema}.db_now()
              ORDER BY e.plan_time DESC LIMIT 10) x
    ) m
    CROSS JOIN LATERAL (
        SELECT least(count(*) FILTER (WHERE y.is_streak), 100) AS streak
        FROM (SELECT bool_and(x.status = 'FAILED') OVER (ORDER BY x.plan_time DESC) AS is_streak
              FROM (SELECT e.plan_time, e.status FROM {schema}.execution_status e
                    WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
                      AND e.plan_time <= {schema}.db_now()
                    ORDER BY e.plan_time DESC LIMIT m.max_rows) x
              WHERE x.status IN ('SUCCESS', 'FAILED')) y
    ) f
    WHERE s.status <> 'SUCCESS'
), facts AS MATERIALIZED (
    SELECT u.job_name, max(u.plan_time) AS last_plan_time, max(u.last_success_at) AS last_success_at, max(u.streak) AS streak
    FROM (
        SELECT n.job_name, n.plan_time, CASE n.status WHEN 'SUCCESS' THEN n.finished_at END AS last_success_at, 0 AS streak
        FROM newest n
        UNION ALL
        SELECT e.job_name, NULL, e.last_success_at, e.streak FROM earlier e
    ) u
    GROUP BY u.job_name
)
SELECT c.name, c.queue, c.schedule, c.timezone, c.handler, c.owner, c.paused, c.total, coalesce(p.scopes, 0) AS scopes,
       CASE WHEN NOT c.paused THEN p.next_plan_time END AS next_plan_time, coalesce(r.count, 0) AS running,
       f.last_plan_time, f.last_success_at, coalesce(f.streak, 0) AS consecutive_failures
FROM chosen c
LEFT JOIN planned p ON p.job_name = c.name
LEFT JOIN running r ON r.job_name = c.name
LEFT JOIN facts f ON f.job_name = c.name
ORDER BY c.name
LIMIT %(max_jobs)s

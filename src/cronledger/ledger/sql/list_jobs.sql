-- Jobs by name with where they stand. `last_*`: the newest execution, unless the job has more than
-- many_scopes scopes (`show` has them one by one). `next_plan_time`: the soonest of its scopes that
-- is not parked for good. No lock. Zero rows: no job of that queue.
SELECT j.name, j.schedule, j.timezone, j.queue, j.handler,
       CASE WHEN j.retired_at IS NOT NULL THEN 'retired'
            WHEN j.spec_error IS NOT NULL THEN 'broken'
            WHEN j.paused_at IS NOT NULL AND coalesce(j.paused_until > {schema}.db_now(), true)
            THEN 'paused' ELSE 'active' END AS state,
       s.scopes, s.parked, s.next_plan_time, r.running, l.plan_time AS last_plan_time,
       l.status AS last_status, j.paused_until, j.spec_error, j.source, j.description
FROM {schema}.jobs j
CROSS JOIN LATERAL (
    SELECT count(*) AS scopes,
           coalesce(array_agg(DISTINCT s.parked) FILTER (WHERE s.parked IS NOT NULL), '{}') AS parked,
           min(s.next_plan_time) FILTER (
               WHERE s.parked IS NULL OR s.parked IN ('waiting', 'limit', 'no_runner')
           ) AS next_plan_time
    FROM {schema}.schedules s
    WHERE s.job_name = j.name AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
) s
CROSS JOIN LATERAL (
    SELECT count(*) AS running FROM {schema}.executions e
    WHERE e.job_name = j.name AND e.status = 'RUNNING'
) r
LEFT JOIN LATERAL (
    SELECT n.plan_time, n.status
    FROM {schema}.schedules t
    CROSS JOIN LATERAL (
        SELECT e.plan_time, e.status FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (t.job_name, t.scope_kind, t.scope_id)
        ORDER BY e.plan_time DESC LIMIT 1
    ) n
    WHERE t.job_name = j.name AND s.scopes <= %(many_scopes)s
    ORDER BY n.plan_time DESC LIMIT 1
) l ON true
WHERE (%(queue)s::text IS NULL OR j.queue = %(queue)s::text)
  AND (%(with_retired)s::boolean OR j.retired_at IS NULL)
ORDER BY j.name

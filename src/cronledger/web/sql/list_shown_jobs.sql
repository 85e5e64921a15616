-- Lists jobs by name after a name, with what a page shows of each. A NULL parameter does not restrict; retired jobs
-- are listed only if `state` asks for them. `p95` and `streak` are those of the last 50 executions that ended, of jobs
-- with one scope, which is named; list_job_durations has more. No lock. Zero rows: none matches.
SELECT o.name, o.schedule, o.timezone, o.queue, o.state, o.scopes, o.parked, o.running, o.last_plan_time,
       o.last_status, o.source, o.description, o.owner, o.labels, o.spec_error, d.paused_by, d.paused_reason,
       nullif(o.paused_until, 'infinity') AS paused_until, nullif(o.next_plan_time, 'infinity') AS next_plan_time,
       o.next_pause, r.p95, r.streak, r.ended, t.scope_kind, t.scope_id
FROM (
    SELECT x.* FROM {schema}.job_overview x
    WHERE (%(search)s::text IS NULL OR strpos(lower(x.name), lower(%(search)s::text)) > 0)
      AND (%(queue)s::text IS NULL OR x.queue = %(queue)s::text)
      AND (%(source)s::text IS NULL OR x.source = %(source)s::text)
      AND (%(owner)s::text IS NULL OR x.owner = %(owner)s::text)
      AND (%(label)s::text IS NULL OR {schema}_internal.has_label(x.labels, %(label)s::text))
      AND CASE WHEN %(state)s::text IS NULL THEN x.state <> 'retired' ELSE x.state = %(state)s::text END
      AND (%(after)s::text IS NULL OR x.name > %(after)s::text COLLATE "C")
    ORDER BY x.name
    LIMIT %(max_rows)s
) o
JOIN {schema}.job_details d ON d.name = o.name
LEFT JOIN LATERAL (
    SELECT v.job_name, v.scope_kind, v.scope_id FROM {schema}.verify_schedules v
    WHERE v.job_name = o.name AND o.scopes = 1 AND (v.retired_at IS NULL OR v.returned_at IS NOT NULL)
    ORDER BY v.scope_kind, v.scope_id LIMIT 1
) t ON true
LEFT JOIN LATERAL (
    SELECT percentile_disc(0.95) WITHIN GROUP (ORDER BY e.duration_ms) AS p95, count(*) AS ended,
           count(*) FILTER (WHERE e.is_streak) AS streak
    FROM (SELECT n.duration_ms, bool_and(n.status = 'FAILED') OVER (ORDER BY n.plan_time DESC) AS is_streak
          FROM (SELECT x.plan_time, x.status, x.duration_ms
                FROM {schema}.execution_status x
                WHERE (x.job_name, x.scope_kind, x.scope_id) = (t.job_name, t.scope_kind, t.scope_id)
                  AND x.status IN ('SUCCESS', 'FAILED')
                ORDER BY x.plan_time DESC LIMIT 50) n) e
) r ON true
ORDER BY o.name

-- Does the same for one job by the key, scope by scope: at most max_of_scope rows of each scope, and at most max_read
-- of all, but one of each. Where a scope has more than were read, the list ends at the first such row of all scopes,
-- which has is_last_read: what follows is not known completely. No lock. Zero rows: none matches.
WITH scopes AS MATERIALIZED (
    SELECT v.job_name, v.scope_kind, v.scope_id,
           greatest(1, least(%(max_of_scope)s, %(max_read)s / count(*) OVER ())) AS max_rows
    FROM {schema}.verify_schedules v
    WHERE v.job_name = %(job)s::text AND (%(scope)s::text IS NULL OR v.scope_id = %(scope)s::text)
), found AS MATERIALIZED (
    SELECT n.*, n.place = v.max_rows AS is_end
    FROM scopes v
    CROSS JOIN LATERAL (
        SELECT x.kind, x.job_name, x.scope_kind, x.scope_id, x.plan_time,
               row_number() OVER (ORDER BY x.plan_time DESC, x.kind DESC) AS place,
               (%(outcomes)s::text[] IS NULL OR x.outcome = ANY (%(outcomes)s::text[]))
               AND (%(reason)s::text IS NULL OR coalesce(x.reason = %(reason)s::text, false))
               AND (%(runner)s::text IS NULL OR coalesce(x.runner_id = %(runner)s::text, false))
               AND (%(owner)s::text IS NULL AND %(label)s::text IS NULL OR coalesce(x.job_name IN (
                    SELECT d.name FROM {schema}.job_details d
                    WHERE (%(owner)s::text IS NULL OR d.owner = %(owner)s::text)
                      AND (%(label)s::text IS NULL OR {schema}_internal.has_label(d.labels, %(label)s::text))), false)) AS is_match
        FROM {schema}.ledger x
        WHERE (x.job_name, x.scope_kind, x.scope_id) = (v.job_name, v.scope_kind, v.scope_id)
          AND x.plan_time >= %(since)s::timestamptz AND x.plan_time < %(until)s::timestamptz
          AND x.kind = ANY (%(of_kinds)s::text[])
          AND (%(before_time)s::timestamptz IS NULL OR x.plan_time <= %(before_time)s::timestamptz AND
               (x.plan_time, x.job_name, x.scope_kind, x.scope_id, x.kind)
               < (%(before_time)s::timestamptz, %(before_job)s::text COLLATE "C",
                  %(before_scope_kind)s::text COLLATE "C", %(before_scope_id)s::text COLLATE "C",
                  %(before_kind)s::text))
        ORDER BY x.plan_time DESC, x.kind DESC
        LIMIT v.max_rows
    ) n
), last_read AS MATERIALIZED (
    SELECT f.plan_time, f.scope_kind, f.scope_id, f.kind FROM found f WHERE f.is_end
    ORDER BY f.plan_time DESC, f.scope_kind DESC, f.scope_id DESC, f.kind DESC LIMIT 1
)
SELECT s.is_last_read, s.is_match, l.kind, l.job_name, l.scope_kind, l.scope_id, l.plan_time, l.through_plan_time,
       l.count, l.outcome, l.reason, l.id, l.attempt, l.trigger, l.started_at, l.finished_at, l.duration,
       l.runner_id, l.revision, l.detail, j.timezone
FROM (
    SELECT f.*, coalesce((f.plan_time, f.scope_kind, f.scope_id, f.kind)
                         = (r.plan_time, r.scope_kind, r.scope_id, r.kind), false) AS is_last_read
    FROM found f LEFT JOIN last_read r ON true
    WHERE (r.plan_time IS NULL AND f.is_match)
       OR (f.is_match AND (f.plan_time, f.scope_kind, f.scope_id, f.kind)
                          > (r.plan_time, r.scope_kind, r.scope_id, r.kind))
       OR (f.plan_time, f.scope_kind, f.scope_id, f.kind) = (r.plan_time, r.scope_kind, r.scope_id, r.kind)
    ORDER BY f.plan_time DESC, f.scope_kind DESC, f.scope_id DESC, f.kind DESC
    LIMIT %(max_rows)s
) s
CROSS JOIN LATERAL (
    SELECT x.* FROM {schema}.ledger x
    WHERE (x.job_name, x.scope_kind, x.scope_id, x.plan_time) = (s.job_name, s.scope_kind, s.scope_id, s.plan_time)
      AND x.kind = s.kind AND x.plan_time >= %(since)s::timestamptz AND x.plan_time < %(until)s::timestamptz
    LIMIT 1  -- by the key, row by row: otherwise the whole window might be merged
) l
LEFT JOIN {schema}.job_details j ON j.name = l.job_name
ORDER BY l.plan_time DESC, l.job_name DESC, l.scope_kind DESC, l.scope_id DESC, l.kind DESC

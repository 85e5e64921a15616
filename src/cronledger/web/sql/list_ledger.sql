-- Lists executions and skips of these kinds with a plan_time in [since, until), the newest first, after the row that
-- the keys of `before` name. A NULL parameter does not restrict. At most max_read of them are read, by the indexes
-- that begin with plan_time. If the last of these is reached before max_rows, it is listed too, with is_last_read,
-- whether it matches or not. No lock. Zero rows: none matches.
SELECT s.is_last_read, s.is_match, l.kind, l.job_name, l.scope_kind, l.scope_id, l.plan_time, l.through_plan_time,
       l.count, l.outcome, l.reason, l.id, l.attempt, l.trigger, l.started_at, l.finished_at, l.duration,
       l.runner_id, l.revision, l.detail, j.timezone
FROM (
    SELECT r.kind, r.job_name, r.scope_kind, r.scope_id, r.plan_time, r.is_match, r.place = %(max_read)s AS is_last_read
    FROM (
        SELECT n.*, row_number() OVER (ORDER BY n.plan_time DESC, n.job_name DESC, n.scope_kind DESC, n.scope_id DESC,
                                                n.kind DESC) AS place,
               (%(outcomes)s::text[] IS NULL OR n.outcome = ANY (%(outcomes)s::text[]))
               AND (%(reason)s::text IS NULL OR coalesce(n.reason = %(reason)s::text, false))
               AND (%(runner)s::text IS NULL OR coalesce(n.runner_id = %(runner)s::text, false))
               AND (%(owner)s::text IS NULL AND %(label)s::text IS NULL OR coalesce(n.job_name IN (
                    SELECT d.name FROM {schema}.job_details d
                    WHERE (%(owner)s::text IS NULL OR d.owner = %(owner)s::text)
                      AND (%(label)s::text IS NULL OR {schema}_internal.has_label(d.labels, %(label)s::text))), false)) AS is_match
        FROM (
            SELECT x.kind, x.job_name, x.scope_kind, x.scope_id, x.plan_time, x.outcome, x.reason, x.runner_id
            FROM {schema}.ledger x
            WHERE x.plan_time >= %(since)s::timestamptz AND x.plan_time < %(until)s::timestamptz
              AND x.kind = ANY (%(of_kinds)s::text[])
              AND (%(before_time)s::timestamptz IS NULL OR x.plan_time <= %(before_time)s::timestamptz AND
                   (x.plan_time, x.job_name, x.scope_kind, x.scope_id, x.kind)
                   < (%(before_time)s::timestamptz, %(before_job)s::text COLLATE "C",
                      %(before_scope_kind)s::text COLLATE "C", %(before_scope_id)s::text COLLATE "C",
                      %(before_kind)s::text))
            ORDER BY x.plan_time DESC, x.job_name DESC, x.scope_kind DESC, x.scope_id DESC, x.kind DESC
            LIMIT %(max_read)s
        ) n
    ) r
    WHERE r.is_match OR r.place = %(max_read)s
    ORDER BY r.plan_time DESC, r.job_name DESC, r.scope_kind DESC, r.scope_id DESC, r.kind DESC
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

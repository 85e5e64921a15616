-- Lists executions and skips with a plan_time in [since, until), the newest first, after the row that the keys of
-- `before` name. A NULL parameter does not restrict. The window bounds the partitions that are read. No lock. Zero
-- rows: none matches.
SELECT l.kind, l.job_name, l.scope_kind, l.scope_id, l.plan_time, l.through_plan_time, l.count, l.outcome,
       l.reason, l.id, l.attempt, l.trigger, l.started_at, l.finished_at, l.duration, l.runner_id, l.revision,
       l.detail, j.timezone
FROM (
    SELECT x.* FROM {schema}.ledger x
    WHERE x.plan_time >= %(since)s::timestamptz AND x.plan_time < %(until)s::timestamptz
      AND (%(outcomes)s::text[] IS NULL OR x.outcome = ANY (%(outcomes)s::text[]))
      AND (%(reason)s::text IS NULL OR x.reason = %(reason)s::text)
      AND (%(runner)s::text IS NULL OR x.runner_id = %(runner)s::text)
      AND (%(before_time)s::timestamptz IS NULL OR x.plan_time <= %(before_time)s::timestamptz AND
           (x.plan_time, x.job_name, x.scope_kind, x.scope_id, x.kind)
           < (%(before_time)s::timestamptz, %(before_job)s::text COLLATE "C", %(before_scope_kind)s::text COLLATE "C",
              %(before_scope_id)s::text COLLATE "C", %(before_kind)s::text))
    ORDER BY x.plan_time DESC, x.job_name DESC, x.scope_kind DESC, x.scope_id DESC, x.kind DESC
    LIMIT %(max_rows)s
) l
LEFT JOIN {schema}.job_details j ON j.name = l.job_name
ORDER BY l.plan_time DESC, l.job_name DESC, l.scope_kind DESC, l.scope_id DESC, l.kind DESC

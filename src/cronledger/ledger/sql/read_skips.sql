-- Reads skips whose range reaches into [since, until), the latest first. A NULL parameter does not restrict.
-- No lock. Zero rows: none matches.
SELECT k.job_name, k.scope_kind, k.scope_id, k.from_plan_time, k.through_plan_time, k.count, k.reason,
       k.blocked_by, k.revision, k.created_at, k.owner, k.labels
FROM {schema}.verify_skips k
WHERE (%(job)s::text IS NULL OR k.job_name = %(job)s::text)
  AND (%(scope)s::text IS NULL OR k.scope_id = %(scope)s::text)
  AND k.through_plan_time >= coalesce(%(since)s::timestamptz, '-infinity')
  AND k.from_plan_time < coalesce(%(until)s::timestamptz, 'infinity')
ORDER BY k.from_plan_time DESC, k.job_name, k.scope_kind, k.scope_id
LIMIT %(max_rows)s::bigint

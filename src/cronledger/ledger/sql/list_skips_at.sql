-- Lists the skips of one scope whose range reaches into [since, until). No lock. Zero rows: there are
-- none.
SELECT k.from_plan_time, k.through_plan_time, k.count, k.reason, k.detail, k.blocked_by, k.revision, k.created_at
FROM {schema}.verify_skips k
WHERE (k.job_name, k.scope_kind, k.scope_id) = (%(job)s, %(kind)s, %(scope)s)
  AND k.from_plan_time < %(until)s AND k.through_plan_time >= %(since)s
ORDER BY k.from_plan_time

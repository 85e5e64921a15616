-- What SQL alone finds wrong in the history of these jobs, of all for NULL, from an instant on. No lock.
-- Reads and sorts all that they did since then. Zero rows: nothing is wrong.
SELECT v.kind, v.job_name, v.scope_kind, v.scope_id, v.plan_time, v.execution_id, v.detail
FROM {schema}_internal.history_violations(%(first)s::timestamptz) v
WHERE %(jobs)s::text[] IS NULL OR v.job_name = ANY (%(jobs)s::text[])
ORDER BY v.job_name, v.scope_kind, v.scope_id, v.plan_time, v.kind

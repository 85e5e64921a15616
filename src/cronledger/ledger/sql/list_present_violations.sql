-- Lists the violations that SQL finds in the current state; job_name NULL: of a queue. No lock. Zero rows:
-- there are none.
SELECT v.kind, v.job_name, v.scope_kind, v.scope_id, v.plan_time, v.execution_id, v.detail
FROM {schema}_internal.present_violations() v
ORDER BY v.job_name, v.scope_kind, v.scope_id, v.plan_time, v.kind

-- Lists the violations that SQL finds in the history of these jobs (NULL: of all) from an instant on. No
-- lock. Reads and sorts all of their attempts since then. Zero rows: there are none. The collation is that of the
-- indexes, which the columns of a function do not have.
SELECT v.kind, v.job_name, v.scope_kind, v.scope_id, v.plan_time, v.execution_id, v.detail
FROM {schema}_internal.history_violations(%(first)s::timestamptz) v
WHERE %(jobs)s::text[] IS NULL OR v.job_name COLLATE "C" = ANY (%(jobs)s::text[])
ORDER BY v.job_name, v.scope_kind, v.scope_id, v.plan_time, v.kind

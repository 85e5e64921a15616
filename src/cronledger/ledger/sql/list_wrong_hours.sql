-- Lists the hours of these jobs (NULL: of all) in a range that the roll-up has counted wrongly. No lock. Reads all of
-- their executions. Zero rows: there are none.
SELECT w.kind, w.job_name, w.scope_kind, w.scope_id, w.plan_time, w.execution_id, w.detail
FROM {schema}_internal.wrong_hours(%(jobs)s::text[], %(first)s::timestamptz, %(last)s::timestamptz) w
ORDER BY w.job_name, w.scope_kind, w.scope_id, w.plan_time

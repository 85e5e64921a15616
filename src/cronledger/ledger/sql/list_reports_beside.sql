-- Lists the reports of a (job, scope) that belong to no plan_time, with a start in (after, through], by their start.
-- No lock. Zero rows: each report belongs to one.
SELECT r.id, r.started_at, r.received_at
FROM {schema}.report_status r
WHERE (r.job_name, r.scope_kind, r.scope_id) = (%(job)s, %(kind)s, %(scope)s)
  AND r.started_at > %(after)s AND r.started_at <= %(through)s
  AND r.plan_time <> date_trunc('second', r.plan_time)
ORDER BY r.started_at, r.id

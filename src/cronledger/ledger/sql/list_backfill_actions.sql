-- What a backfill of these plan_times would do, in their order: make, retry, repeat, or NULL, and the
-- execution that is there. No lock. Zero rows: there is no such (job, scope).
SELECT a.plan_time, a.action, a.id, e.status
FROM {schema}.schedules s JOIN {schema}.jobs j ON j.name = s.job_name
CROSS JOIN LATERAL {schema}.backfill_actions(
    j, s, %(plan_times)s::timestamptz[], %(reprocess)s, %(ended_before)s::timestamptz) a
LEFT JOIN {schema}.executions e
    ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
     = (s.job_name, s.scope_kind, s.scope_id, a.plan_time)
WHERE (s.job_name, s.scope_kind, s.scope_id) = (%(job)s, %(kind)s, %(scope)s)
ORDER BY a.place

-- Returns the successes for which an execution waited, of these required scopes: at most 1,000 of each, the newest, in the
-- order of their plan_times. No lock. Zero rows: the execution did not wait, or nothing was required of it.
SELECT u.job AS job_name, s.plan_time, s.result
FROM {schema}.executions e
CROSS JOIN unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[]) u(job, kind, scope)
CROSS JOIN LATERAL (
    SELECT x.plan_time, x.result FROM {schema}.executions x
    WHERE (x.job_name, x.scope_kind, x.scope_id) = (u.job, u.kind, u.scope)
      AND x.plan_time > e.gate_after AND x.plan_time <= e.plan_time
      AND x.status = 'SUCCESS' AND x.trigger IN ('schedule', 'backfill')
    ORDER BY x.plan_time DESC LIMIT 1000
) s
WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (%(job)s, %(kind)s, %(scope)s, %(plan)s)
ORDER BY u.job, s.plan_time

-- Returns the state of these executions. No lock. A row that does not come back was dropped with its
-- partition.
SELECT u.token, e.*
FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[],
            %(tokens)s::uuid[]) AS u(job, kind, scope, plan, token)
CROSS JOIN LATERAL (
    SELECT e.status, e.error_code, e.lease_token = u.token, e.cancel_requested_at IS NOT NULL
    FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
      AND e.plan_time BETWEEN %(first)s AND %(last)s
    LIMIT 1) e

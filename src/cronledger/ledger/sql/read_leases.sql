-- What became of these executions. No lock. A row that does not come back was dropped with its
-- partition.
SELECT u.token, e.status, e.error_code, e.lease_token = u.token, e.cancel_requested_at IS NOT NULL
FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[],
            %(tokens)s::uuid[]) AS u(job, kind, scope, plan, token)
JOIN {schema}.executions e
    ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
WHERE e.plan_time BETWEEN %(first)s AND %(last)s

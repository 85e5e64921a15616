-- Returns the state of these executions. error_code: of the attempt with this token, which may be an earlier
-- one that was released or is being retried. No lock. A row that does not come back was dropped with its
-- partition.
SELECT u.token, e.*
FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[],
            %(tokens)s::uuid[]) AS u(job, kind, scope, plan, token)
CROSS JOIN LATERAL (
    SELECT e.status,
           coalesce((SELECT a.error_code
                     FROM jsonb_to_recordset(e.attempts) AS a(lease_token uuid, error_code text)
                     WHERE a.lease_token = u.token LIMIT 1),
                    CASE WHEN e.lease_token = u.token THEN e.error_code END),
           coalesce(e.lease_token = u.token, false), e.cancel_requested_at IS NOT NULL
    FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
      AND e.plan_time BETWEEN %(first)s AND %(last)s
    LIMIT 1) e

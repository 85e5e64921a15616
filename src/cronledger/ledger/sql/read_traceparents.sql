-- Returns the traceparents of these executions, which the transaction has claimed. A replica sends it only if it
-- traces. No lock. Zero rows: none of them has one.
SELECT e.id, e.traceparent
FROM (SELECT * FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[])
      LIMIT cardinality(%(plans)s::timestamptz[])) AS u(job, kind, scope, plan)
CROSS JOIN LATERAL (
    SELECT e.id, e.traceparent FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
      AND e.plan_time BETWEEN %(first)s AND %(last)s
    LIMIT 1) e
WHERE e.traceparent IS NOT NULL

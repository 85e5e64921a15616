-- Leases renewed; answers the tokens renewed and whether the end of the execution was asked for.
-- Lock: executions FOR NO KEY UPDATE in key order, SKIP LOCKED: a row that is being finished must not
-- hold up the others. A token that does not come back is either busy or lost: read_leases tells.
WITH held AS MATERIALIZED (
    SELECT u.*
    FROM (SELECT * FROM unnest(
              %(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[],
              %(tokens)s::uuid[], %(stale_timeouts)s::interval[])
          LIMIT cardinality(%(tokens)s::uuid[]))
        AS u(job, kind, scope, plan, token, stale_timeout)
    JOIN {schema}.executions e
        ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
    WHERE e.plan_time BETWEEN %(first)s AND %(last)s
      AND e.lease_token = u.token AND e.status = (SELECT 'RUNNING')
    ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
    FOR NO KEY UPDATE OF e SKIP LOCKED
)
UPDATE {schema}.executions e
SET heartbeat_at = {schema}.db_now(), stale_after = {schema}.db_now() + h.stale_timeout
FROM held h
WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (h.job, h.kind, h.scope, h.plan)
  AND e.plan_time BETWEEN %(first)s AND %(last)s
  AND e.lease_token = h.token AND e.status = (SELECT 'RUNNING')
RETURNING e.lease_token, e.cancel_requested_at IS NOT NULL

-- The RUNNING executions of these (job, scope) are asked to end, for overlap = replace.
-- Lock: executions FOR NO KEY UPDATE in key order, SKIP LOCKED; passes a user's assert_lease. What was
-- busy is asked once more after the claim, then by the claims for which the sweeper re-arms it.
WITH held AS MATERIALIZED (
    SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time
    FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[]) AS u(job, kind, scope)
    JOIN {schema}.executions e
        ON (e.job_name, e.scope_kind, e.scope_id) = (u.job, u.kind, u.scope) AND e.status = 'RUNNING'
    WHERE e.cancel_requested_at IS NULL
    ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time FOR NO KEY UPDATE OF e SKIP LOCKED
)
UPDATE {schema}.executions e
SET cancel_requested_at = {schema}.db_now(), cancel_requested_by = 'overlap=replace'
FROM held h
WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
    = (h.job_name, h.scope_kind, h.scope_id, h.plan_time)

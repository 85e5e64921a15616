-- Requests that the RUNNING executions of these (job, scope) end, for overlap = replace.
-- They are found first, by a probe of the index for each (job, scope), and then locked by their key. A
-- join that finds and locks at once reads every RUNNING row for each (job, scope), if it is planned while
-- a partition has rows and no statistics. LIMIT: PostgreSQL assumes that each list is short, and begins
-- with it.
-- Lock: executions FOR NO KEY UPDATE in key order, SKIP LOCKED; passes a user's assert_lease. For rows
-- that were locked the request is repeated once after the claim, and then by the claims for which the
-- sweeper re-arms the schedule.
WITH running AS MATERIALIZED (
    SELECT e.*
    FROM (SELECT * FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[])
          LIMIT cardinality(%(jobs)s::text[])) AS u(job, kind, scope)
    CROSS JOIN LATERAL (
        SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (u.job, u.kind, u.scope)
          AND e.status = 'RUNNING' AND e.cancel_requested_at IS NULL
        OFFSET 0) e
), held AS MATERIALIZED (
    SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time
    FROM (SELECT * FROM running LIMIT (SELECT count(*) FROM running)) r
    JOIN {schema}.executions e
        ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
         = (r.job_name, r.scope_kind, r.scope_id, r.plan_time)
    WHERE e.status = (SELECT 'RUNNING') AND e.cancel_requested_at IS NULL
    ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
    FOR NO KEY UPDATE OF e SKIP LOCKED
)
UPDATE {schema}.executions e
SET cancel_requested_at = {schema}.db_now(), cancel_requested_by = 'overlap=replace'
FROM held h
WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
    = (h.job_name, h.scope_kind, h.scope_id, h.plan_time)

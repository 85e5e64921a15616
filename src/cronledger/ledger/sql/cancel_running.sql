-- Requests that the RUNNING executions of these jobs end. One row for each: its id and the result of
-- {schema}.cancel, which records the request in the audit trail, or `busy`: another transaction has locked it
-- (call again). Zero rows: no execution has to be cancelled.
-- Lock: executions FOR NO KEY UPDATE in key order, SKIP LOCKED.
WITH running AS MATERIALIZED (
    SELECT e.id, e.job_name, e.scope_kind, e.scope_id, e.plan_time FROM {schema}.executions e
    WHERE e.status = 'RUNNING' AND e.job_name = ANY (%(jobs)s::text[]) AND e.cancel_requested_at IS NULL
), free AS MATERIALIZED (
    SELECT e.id FROM running r
    JOIN {schema}.executions e ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
                                = (r.job_name, r.scope_kind, r.scope_id, r.plan_time)
    ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time FOR NO KEY UPDATE OF e SKIP LOCKED
)
SELECT r.id, CASE WHEN f.id IS NULL THEN 'busy' ELSE {schema}.cancel(r.id, %(requested_by)s) END AS result
FROM running r LEFT JOIN free f ON f.id = r.id
ORDER BY r.job_name, r.scope_kind, r.scope_id, r.plan_time

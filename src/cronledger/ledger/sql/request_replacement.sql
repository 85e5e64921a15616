-- Requests that these RUNNING executions end, for overlap = replace, and notifies their holders. The claim has read
-- them while it held their schedules.
-- LIMIT: PostgreSQL assumes that the list is short, and begins with it.
-- Lock: executions FOR NO KEY UPDATE in key order, SKIP LOCKED; passes a user's assert_lease. For rows
-- that were locked the request is repeated once after the claim, and then by the claims for which the
-- sweeper re-arms the schedule.
WITH held AS MATERIALIZED (
    SELECT u.*
    FROM (SELECT * FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[],
                               %(plans)s::timestamptz[])
          LIMIT cardinality(%(jobs)s::text[])) AS u(job, kind, scope, plan)
    JOIN {schema}.executions e
        ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
    WHERE e.plan_time BETWEEN %(first)s AND %(last)s
      AND e.status = (SELECT 'RUNNING') AND e.cancel_requested_at IS NULL
    ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
    FOR NO KEY UPDATE OF e SKIP LOCKED
), requested AS (
    UPDATE {schema}.executions e
    SET cancel_requested_at = {schema}.db_now(), cancel_requested_by = 'overlap=replace'
    FROM held h
    WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (h.job, h.kind, h.scope, h.plan)
      AND e.plan_time BETWEEN %(first)s AND %(last)s
    RETURNING 1
)
SELECT pg_notify('{schema}', 'cancel') WHERE EXISTS (SELECT FROM requested)

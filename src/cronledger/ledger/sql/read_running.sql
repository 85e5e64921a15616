-- RUNNING executions of these (job, scope), whatever their trigger. A statement of its own after the
-- locks: seen with a snapshot that is newer than they are. status is a constant here: it is what
-- lets the partial index serve.
SELECT u.*, e.*
FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[]) AS u(job, kind, scope)
CROSS JOIN LATERAL (
    SELECT e.plan_time, e.id FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (u.job, u.kind, u.scope) AND e.status = 'RUNNING'
    OFFSET 0) e

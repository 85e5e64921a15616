-- Returns the RUNNING executions of these (job, scope), whatever triggered them. A statement of its own
-- after the locks, so that its snapshot is newer than they are. status is a constant, because only then
-- the partial index can be used.
SELECT u.*, e.*
FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[]) AS u(job, kind, scope)
CROSS JOIN LATERAL (
    SELECT e.plan_time, e.id FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (u.job, u.kind, u.scope) AND e.status = 'RUNNING'
    OFFSET 0) e

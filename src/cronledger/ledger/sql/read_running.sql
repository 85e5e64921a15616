-- RUNNING executions of these (job, scope), whatever their trigger. A statement of its own after the
-- locks: seen with a snapshot that is newer than they are. status is a constant here: it is what
-- lets the partial index serve.
SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id
FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[]) AS u(job, kind, scope)
JOIN {schema}.executions e
    ON (e.job_name, e.scope_kind, e.scope_id) = (u.job, u.kind, u.scope) AND e.status = 'RUNNING'

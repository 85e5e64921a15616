-- Removes these schedules from the due index, because the values of their job cannot be stored. An edit
-- re-arms them.
-- Lock: schedules by key, waiting. In a transaction of its own.
WITH held AS MATERIALIZED (
    SELECT s.job_name, s.scope_kind, s.scope_id
    FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[]) AS u(job, kind, scope)
    JOIN {schema}.schedules s ON (s.job_name, s.scope_kind, s.scope_id) = (u.job, u.kind, u.scope)
    ORDER BY s.job_name, s.scope_kind, s.scope_id FOR NO KEY UPDATE OF s
)
UPDATE {schema}.schedules s SET parked = 'spec_error', next_due_at = NULL, woken = false
FROM held h
WHERE (s.job_name, s.scope_kind, s.scope_id) = (h.job_name, h.scope_kind, h.scope_id)

-- These schedule rows, waiting for whoever holds them: after a COMMIT of unknown outcome the old
-- backend may still be at it, and its locks go with its transaction.
-- Lock: schedules FOR NO KEY UPDATE in key order, waiting.
SELECT s.job_name
FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[]) AS u(job, kind, scope)
JOIN {schema}.schedules s ON (s.job_name, s.scope_kind, s.scope_id) = (u.job, u.kind, u.scope)
ORDER BY s.job_name, s.scope_kind, s.scope_id FOR NO KEY UPDATE OF s

-- Returns the PENDING executions of schedules of these (job, scope) that no worker has claimed yet. A
-- statement of its own after the locks, like read_running. No lock.
SELECT e.job_name, e.scope_kind, e.scope_id, min(e.id)
FROM {schema}.executions e
WHERE e.job_name = ANY (%(jobs)s::text[]) AND e.next_attempt_at IS NOT NULL
  AND e.status = 'PENDING' AND e.trigger = 'schedule'
  AND (e.job_name, e.scope_kind, e.scope_id) IN (
      SELECT * FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[]))
GROUP BY 1, 2, 3

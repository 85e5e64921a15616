-- Lists jobs by name, with their state. A NULL parameter does not restrict. No lock. Zero rows: none matches.
SELECT j.name, j.schedule, j.timezone, j.queue, j.handler, j.state, j.scopes, j.parked,
       j.next_plan_time, j.running, j.last_plan_time, j.last_status, j.paused_until, j.spec_error,
       j.source, j.description, j.owner, j.labels, j.next_pause
FROM {schema}.job_overview j
WHERE (%(queue)s::text IS NULL OR j.queue = %(queue)s::text)
  AND (%(owner)s::text IS NULL OR j.owner = %(owner)s::text)
  AND (%(labels)s::jsonb IS NULL OR j.labels @> %(labels)s::jsonb)
  AND (%(with_retired)s::boolean OR j.state <> 'retired')
ORDER BY j.name

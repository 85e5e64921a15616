-- Lists jobs by name, with their state. No lock. Zero rows: the queue has no job.
SELECT j.name, j.schedule, j.timezone, j.queue, j.handler, j.state, j.scopes, j.parked,
       j.next_plan_time, j.running, j.last_plan_time, j.last_status, j.paused_until, j.spec_error,
       j.source, j.description
FROM {schema}.job_overview j
WHERE (%(queue)s::text IS NULL OR j.queue = %(queue)s::text)
  AND (%(with_retired)s::boolean OR j.state <> 'retired')
ORDER BY j.name

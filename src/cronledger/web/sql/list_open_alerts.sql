-- Lists the alert states that are open, the longest first, with the zone of each job. A NULL parameter does not restrict.
-- No lock. Zero rows: no alert is open.
SELECT a.job_name, a.scope_kind, a.scope_id, a.runner_id, a.event, a.since, a.count, a.last_alert_at, a.summary,
       a.channel, a.execution_id, a.plan_time, j.timezone
FROM {schema}.alert_states a
LEFT JOIN {schema}.job_details j ON j.name = a.job_name
WHERE (%(job)s::text IS NULL
       OR (a.job_name, a.scope_kind, a.scope_id) = (%(job)s::text, %(scope_kind)s::text, %(scope_id)s::text))
  AND (%(owner)s::text IS NULL OR a.owner = %(owner)s::text)
  AND (%(label)s::text IS NULL OR {schema}_internal.has_label(a.labels, %(label)s::text))
ORDER BY a.since, a.event, a.job_name, a.scope_kind, a.scope_id, a.runner_id, a.channel
LIMIT %(max_rows)s

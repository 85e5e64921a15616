-- Lists open states, the oldest first, with the columns of list_alerts. A NULL parameter does not restrict. No lock. Zero rows: none is open.
SELECT s.since AS at, s.event, 'open' AS kind, s.channel, s.job_name, s.scope_kind, s.scope_id, s.runner_id, s.count,
       s.last_alert_at, NULL AS delivery_status, NULL::bigint AS execution_id, s.summary, s.owner, s.labels
FROM {schema}.alert_states s
WHERE (%(job)s::text IS NULL OR s.job_name = %(job)s::text)
  AND (%(owner)s::text IS NULL OR s.owner = %(owner)s::text)
  AND (%(labels)s::jsonb IS NULL OR s.labels @> %(labels)s::jsonb)
ORDER BY s.since, s.job_name, s.scope_kind, s.scope_id, s.runner_id, s.event, s.channel
LIMIT %(max_rows)s

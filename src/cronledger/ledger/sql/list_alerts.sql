-- Lists alerts, the newest first. A NULL parameter does not restrict. No lock. Zero rows: none matches.
SELECT a.id, a.at, a.event, a.kind, a.channel, a.job_name, a.scope_kind, a.scope_id, a.runner_id, a.execution_id,
       a.plan_time, a.summary, a.delivery_id, a.delivery_status, a.delivered_at, a.owner, a.labels
FROM {schema}.alerts a
WHERE (%(job)s::text IS NULL OR a.job_name = %(job)s::text)
  AND (%(since)s::timestamptz IS NULL OR a.at >= %(since)s::timestamptz)
  AND (%(execution_id)s::bigint IS NULL OR a.execution_id = %(execution_id)s::bigint)
  AND (%(owner)s::text IS NULL OR a.owner = %(owner)s::text)
  AND (%(labels)s::jsonb IS NULL OR a.labels @> %(labels)s::jsonb)
ORDER BY a.at DESC, a.id DESC
LIMIT %(max_rows)s

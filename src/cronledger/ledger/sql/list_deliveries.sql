-- Lists deliveries of alerts, the newest first. A NULL parameter does not restrict. No lock. Zero rows: none matches.
SELECT d.id, d.channel, d.status, d.created_at, d.due_at, d.attempt, d.max_attempts, d.runner_id, d.started_at,
       d.finished_at, d.error_code, d.error_msg, d.requested_by
FROM {schema}.delivery_status d
WHERE (%(delivery)s::bigint IS NULL OR d.id = %(delivery)s::bigint)
  AND (%(channel)s::text IS NULL OR d.channel = %(channel)s::text)
  AND (%(status)s::text IS NULL OR d.status = %(status)s::text)
ORDER BY d.id DESC
LIMIT %(max_rows)s

-- Lists executions, the newest rows first. A NULL parameter does not restrict. since and until restrict
-- plan_time, and so the partitions that are read. No lock. Zero rows: none matches.
SELECT e.id, e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.status, e.trigger, e.queue,
       e.due_at, e.attempt, e.max_attempts, e.next_attempt_at, e.waits_for, e.runner_id, e.started_at,
       e.finished_at, e.duration_ms, e.rows_affected, e.error_code, e.error_msg, e.requested_by,
       e.owner, e.labels, e.progress_done, e.progress_total, e.progress_text, e.progress_at
FROM {schema}.execution_status e
WHERE (%(job)s::text IS NULL OR e.job_name = %(job)s::text)
  AND (%(scope)s::text IS NULL OR e.scope_id = %(scope)s::text)
  AND (%(owner)s::text IS NULL AND %(labels)s::jsonb IS NULL OR e.job_name = ANY (ARRAY(
       SELECT j.name FROM {schema}.job_details j
       WHERE (%(owner)s::text IS NULL OR j.owner = %(owner)s::text)
         AND (%(labels)s::jsonb IS NULL OR j.labels @> %(labels)s::jsonb))))
  AND (%(statuses)s::text[] IS NULL OR e.status = ANY (%(statuses)s::text[]))
  AND (%(runner)s::text IS NULL OR e.runner_id = %(runner)s::text)
  AND e.plan_time >= coalesce(%(since)s::timestamptz, '-infinity')
  AND e.plan_time < coalesce(%(until)s::timestamptz, 'infinity')
ORDER BY e.id DESC
LIMIT %(max_rows)s

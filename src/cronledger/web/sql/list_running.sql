-- Lists the executions that are RUNNING, the one whose lease ends first at the top. A NULL parameter does not restrict.
-- No lock. Zero rows: none.
SELECT r.id, r.job_name, r.scope_kind, r.scope_id, r.plan_time, r.runner_id, r.attempt, r.max_attempts,
       r.trigger, r.started_at, r.lease_left, r.lease_left + {schema}.db_now() AS stale_after,
       r.cancel_requested_by,
       r.progress_done, r.progress_total, r.progress_text, r.progress_at, j.timezone
FROM {schema}.running r
LEFT JOIN {schema}.job_details j ON j.name = r.job_name
WHERE (%(owner)s::text IS NULL OR r.owner = %(owner)s::text)
  AND (%(label)s::text IS NULL OR {schema}_internal.has_label(r.labels, %(label)s::text))
ORDER BY r.lease_left, r.id
LIMIT %(max_rows)s

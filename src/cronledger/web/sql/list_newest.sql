-- Lists the newest rows of the ledger of one scope, up to now, by plan_time. No lock. Zero rows: nothing was planned yet.
SELECT l.kind, l.plan_time, l.through_plan_time, l.count, l.outcome, l.reason, l.id, l.duration, l.runner_id,
       l.job_name, l.outcome AS status, CASE WHEN l.outcome = 'FAILED' THEN l.detail END AS error,
       r.started_at, r.progress_done, r.progress_total, r.progress_text, r.progress_at
FROM {schema}.ledger l
LEFT JOIN {schema}.running r
    ON l.outcome = 'RUNNING'
   AND (r.job_name, r.scope_kind, r.scope_id, r.plan_time) = (l.job_name, l.scope_kind, l.scope_id, l.plan_time)
WHERE (l.job_name, l.scope_kind, l.scope_id) = (%(job)s::text, %(scope_kind)s::text, %(scope_id)s::text)
  AND l.plan_time <= {schema}.db_now()
ORDER BY l.plan_time DESC
LIMIT %(max_rows)s

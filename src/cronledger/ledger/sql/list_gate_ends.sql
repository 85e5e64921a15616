-- Lists the ends of gates of a (job, scope) with plan_time in (after, through], by plan_time: the executions of the
-- schedule and of backfills that have started, and the skips with the reason upstream. No lock.
SELECT e.id, e.plan_time, e.revision, e.first_started_at AS started_at, NULL::timestamptz AS skipped_at
FROM {schema}.execution_status e
WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s, %(kind)s, %(scope)s)
  AND e.plan_time > %(after)s AND e.plan_time <= %(through)s
  AND e.trigger IN ('schedule', 'backfill') AND e.first_started_at IS NOT NULL
UNION ALL
SELECT NULL, k.from_plan_time, k.revision, NULL, k.created_at
FROM {schema}.verify_skips k
WHERE (k.job_name, k.scope_kind, k.scope_id) = (%(job)s, %(kind)s, %(scope)s)
  AND k.from_plan_time > %(after)s AND k.from_plan_time <= %(through)s AND k.reason = 'upstream'
ORDER BY plan_time

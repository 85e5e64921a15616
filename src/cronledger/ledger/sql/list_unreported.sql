-- Lists the skips not_reported of a (job, scope) that reach into (after, through], by their first plan_time. No lock.
SELECT k.from_plan_time AS first, k.through_plan_time AS last
FROM {schema}.verify_skips k
WHERE (k.job_name, k.scope_kind, k.scope_id) = (%(job)s, %(kind)s, %(scope)s)
  AND k.through_plan_time > %(after)s AND k.from_plan_time <= %(through)s AND k.reason = 'not_reported'
ORDER BY k.from_plan_time

-- Lists the skips of (job, scope) in a range of keys, by key and first plan_time, that reach into a range
-- of plan_times. succeeded: it is superseded, and a later execution of any trigger is a SUCCESS. No lock.
SELECT k.job_name, k.scope_kind, k.scope_id, k.from_plan_time, k.through_plan_time, k.count, k.reason,
       k.detail, k.blocked_by, k.revision, k.created_at,
       k.reason = 'superseded' AND EXISTS (
           SELECT FROM {schema}.verify_executions e
           WHERE (e.job_name, e.scope_kind, e.scope_id) = (k.job_name, k.scope_kind, k.scope_id)
             AND e.plan_time > k.through_plan_time AND e.status = 'SUCCESS') AS succeeded
FROM {schema}.verify_skips k
WHERE (k.job_name, k.scope_kind, k.scope_id) > (%(job)s, %(kind)s, %(scope)s)
  AND (k.job_name, k.scope_kind, k.scope_id) <= (%(last_job)s, %(last_kind)s, %(last_scope)s)
  AND k.through_plan_time > %(after)s AND k.from_plan_time <= %(through)s
ORDER BY k.job_name, k.scope_kind, k.scope_id, k.from_plan_time

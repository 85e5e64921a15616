-- Lists the scheduled executions of a (job, scope) with plan_time in (after, through], by plan_time, each with the start
-- of its observed attempt, and the start that its report states; NULL: it has no report. No lock.
SELECT e.plan_time, e.id, coalesce((
           SELECT (a.entry ->> 'started_at')::timestamptz FROM jsonb_array_elements(e.attempts) AS a(entry)
           WHERE a.entry ->> 'runner_id' = 'observed' LIMIT 1), e.started_at) AS started_at,
       r.started_at AS reported_at
FROM {schema}.verify_executions e
LEFT JOIN {schema}.report_status r
    ON (r.job_name, r.scope_kind, r.scope_id, r.plan_time, r.execution_id)
     = (e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id)
WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s, %(kind)s, %(scope)s)
  AND e.plan_time > %(after)s AND e.plan_time <= %(through)s AND e.trigger = 'schedule'
ORDER BY e.plan_time

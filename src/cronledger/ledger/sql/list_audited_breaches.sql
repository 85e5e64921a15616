-- Lists the breaches of a job with plan_time in a range, and its deadlines that are not judged.
-- No lock. Zero rows: there are none.
SELECT b.scope_kind, b.scope_id, b.plan_time, b.kind, b.deadline, b.closed_at, b.look_at, true AS judged
FROM {schema}.verify_breaches b
WHERE b.job_name = %(job)s AND b.plan_time > %(after)s AND b.plan_time <= %(through)s
UNION ALL
SELECT d.scope_kind, d.scope_id, d.plan_time, d.kind, d.deadline, NULL, NULL, false
FROM {schema}.unjudged_deadlines d
WHERE d.job_name = %(job)s AND d.plan_time > %(after)s AND d.plan_time <= %(through)s

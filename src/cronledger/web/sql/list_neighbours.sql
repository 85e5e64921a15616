-- Lists the three rows of the ledger before and after a plan_time of one scope, and the row itself. No lock. Always at
-- least one row while the execution exists.
SELECT n.kind, n.plan_time, n.through_plan_time, n.count, n.outcome, n.reason, n.id, n.duration, n.runner_id
FROM (
    (SELECT x.* FROM {schema}.ledger x
     WHERE (x.job_name, x.scope_kind, x.scope_id) = (%(job)s::text, %(scope_kind)s::text, %(scope_id)s::text)
       AND x.plan_time <= %(at)s::timestamptz
     ORDER BY x.plan_time DESC LIMIT 4)
    UNION ALL
    (SELECT x.* FROM {schema}.ledger x
     WHERE (x.job_name, x.scope_kind, x.scope_id) = (%(job)s::text, %(scope_kind)s::text, %(scope_id)s::text)
       AND x.plan_time > %(at)s::timestamptz
     ORDER BY x.plan_time LIMIT 3)
) n
ORDER BY n.plan_time DESC, n.kind

-- Lists the executions that are RUNNING, the one whose lease ends first at the top. No lock. Zero rows: none.
SELECT r.id, r.job_name, r.scope_kind, r.scope_id, r.plan_time, r.runner_id, r.attempt, r.max_attempts,
       r.trigger, r.started_at, r.running_for, r.lease_left, r.cancel_requested_by, j.timezone
FROM {schema}.running r
LEFT JOIN {schema}.job_details j ON j.name = r.job_name
ORDER BY r.lease_left, r.id
LIMIT %(max_rows)s

-- RUNNING executions that bear this runner's name and a token it does not hold: a COMMIT whose answer
-- was lost. No lock. Never beside a claim of one's own in flight.
SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.lease_token
FROM {schema}.executions e
WHERE e.status = 'RUNNING' AND e.runner_id = %(runner)s AND e.lease_token <> ALL (%(tokens)s::uuid[])

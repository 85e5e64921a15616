-- Lists the executions that are RUNNING, the first started first, with what they use. No lock. Zero rows: there are
-- none.
SELECT r.job_name, r.scope_kind, r.scope_id, r.plan_time, r.queue, r.started_at,
       r.runner_id = 'observed' AS is_observed
FROM {schema}.running r
ORDER BY r.started_at
LIMIT %(max_rows)s

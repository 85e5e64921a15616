-- How an execution ended under this token, once nobody else is about to write it.
-- Lock: its row FOR NO KEY UPDATE, waiting: a backend whose COMMIT went unanswered may still commit,
-- and has the row until then. Zero rows: another holder's token is on it.
SELECT e.status
FROM {schema}.executions e
WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
    = (%(job)s::text, %(kind)s::text, %(scope)s::text, %(plan)s::timestamptz)
  AND e.lease_token = %(token)s::uuid
FOR NO KEY UPDATE

-- Returns how an execution ended under this token, once no other backend can write it.
-- Lock: its row FOR NO KEY UPDATE, waiting. A backend whose COMMIT is of unknown outcome may still commit,
-- and holds the row until then. Zero rows: the row has the token of another holder.
SELECT e.status
FROM {schema}.executions e
WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
    = (%(job)s::text, %(kind)s::text, %(scope)s::text, %(plan)s::timestamptz)
  AND e.lease_token = %(token)s::uuid
FOR NO KEY UPDATE

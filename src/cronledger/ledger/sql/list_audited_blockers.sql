-- Returns from when until when these executions blocked others: from their first start (for external jobs:
-- from their planning) to their end. No lock. An execution is missing if its partition was dropped.
SELECT e.id, e.job_name, e.scope_kind, e.scope_id, e.created_at,
       coalesce((e.attempts -> 0 ->> 'started_at')::timestamptz, e.started_at) AS started_at,
       CASE WHEN e.status IN ('PENDING', 'RUNNING') THEN NULL ELSE e.finished_at END AS finished_at
FROM {schema}.verify_executions e
WHERE e.id = ANY (%(ids)s::bigint[])

-- From when until when these executions were in the way of others: from their first start (those of
-- workers that claim by themselves: from when they were planned) to their end. The first execution there
-- still is, with each: an older one may have been dropped with its partition. No lock.
SELECT e.id, e.job_name, e.scope_kind, e.scope_id, e.created_at,
       coalesce((e.attempts -> 0 ->> 'started_at')::timestamptz, e.started_at) AS started_at,
       CASE WHEN e.status IN ('PENDING', 'RUNNING') THEN NULL ELSE e.finished_at END AS finished_at
FROM {schema}.verify_executions e
WHERE e.id = ANY (%(ids)s::bigint[])

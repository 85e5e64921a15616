-- Inserts planned executions of jobs with handler external: PENDING, due at due_at. An existing row is
-- left as it is.
-- Lock: the schedule rows are held; inserted in key order, as in try_claim_new.
INSERT INTO {schema}.executions
    (job_name, scope_kind, scope_id, plan_time, status, trigger, revision, queue, due_at,
     next_attempt_at, payload, attempt, max_attempts)
SELECT u.job COLLATE "C", u.kind COLLATE "C", u.scope COLLATE "C", u.plan, 'PENDING', 'schedule',
       u.revision, u.queue, u.due_at, u.due_at, u.payload, 0, u.max_attempts
FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[],
            %(revisions)s::bigint[], %(queues)s::text[], %(dues)s::timestamptz[],
            %(payloads)s::jsonb[], %(max_attempts)s::int[])
    AS u(job, kind, scope, plan, revision, queue, due_at, payload, max_attempts)
ORDER BY 1, 2, 3, 4
ON CONFLICT ON CONSTRAINT uq_execution DO NOTHING

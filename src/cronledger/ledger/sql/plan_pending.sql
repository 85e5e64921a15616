-- Inserts planned executions of jobs with handler external: PENDING, due at due_at; and of gated jobs: PENDING, with a
-- gate that is due to be checked. An existing row is left as it is.
-- Lock: the schedule rows are held; inserted in key order, as in try_claim_new.
WITH made AS (
INSERT INTO {schema}.executions
    (job_name, scope_kind, scope_id, plan_time, status, trigger, revision, queue, due_at,
     next_attempt_at, gated_at, payload, attempt, max_attempts)
SELECT u.job COLLATE "C", u.kind COLLATE "C", u.scope COLLATE "C", u.plan, 'PENDING', 'schedule',
       u.revision, u.queue, u.due_at, CASE WHEN NOT u.gated THEN u.due_at END,
       CASE WHEN u.gated THEN {schema}.db_now() END, u.payload, 0, u.max_attempts
FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[],
            %(revisions)s::bigint[], %(queues)s::text[], %(dues)s::timestamptz[],
            %(payloads)s::jsonb[], %(max_attempts)s::int[], %(gated)s::boolean[])
    AS u(job, kind, scope, plan, revision, queue, due_at, payload, max_attempts, gated)
ORDER BY 1, 2, 3, 4
ON CONFLICT ON CONSTRAINT uq_execution DO NOTHING
RETURNING job_name, scope_kind, scope_id, plan_time, gated_at
)
INSERT INTO {schema}.gates (job_name, scope_kind, scope_id, plan_time)
SELECT m.job_name, m.scope_kind, m.scope_id, m.plan_time FROM made m WHERE m.gated_at IS NOT NULL
ORDER BY 1, 2, 3, 4

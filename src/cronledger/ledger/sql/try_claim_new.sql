-- Inserts planned executions that are RUNNING under the given tokens from the start, and returns those
-- that were inserted.
-- Lock: the schedule rows are held, so that no other transaction inserts these keys; inserted in key
-- order, because a conflict would wait for the other transaction. A row that does not come back existed
-- already. Raises CL007 if one of them is not due yet, because the clock leapt back, or if a queue was
-- paused meanwhile: the schedule's lock does not prevent either. `ahead`: nor may a queue have a limit, because
-- the claim has not counted its executions at this instant. A lease begins when its row is written (db_clock()).
INSERT INTO {schema}.executions AS e
    (job_name, scope_kind, scope_id, plan_time, status, trigger, revision, queue, due_at, payload,
     attempt, max_attempts, runner_id, lease_token, heartbeat_at, stale_after, started_at, watermark,
     window_start)
SELECT u.job COLLATE "C", u.kind COLLATE "C", u.scope COLLATE "C", u.plan, 'RUNNING', 'schedule',
       u.revision, u.queue, u.due_at, u.payload, 1, u.max_attempts, %(runner)s, u.token,
       {schema}.db_clock(), {schema}.db_clock() + u.stale_timeout, {schema}.db_now(), u.watermark,
       u.window_start
FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[],
            %(revisions)s::bigint[], %(queues)s::text[], %(dues)s::timestamptz[],
            %(payloads)s::jsonb[], %(max_attempts)s::int[], %(tokens)s::uuid[],
            %(stale_timeouts)s::interval[], %(watermarks)s::bigint[], %(window_starts)s::timestamptz[])
    AS u(job, kind, scope, plan, revision, queue, due_at, payload, max_attempts, token, stale_timeout,
         watermark, window_start)
WHERE (SELECT CASE WHEN max(d.due_at) <= {schema}.db_now() AND NOT EXISTS (
                  SELECT FROM {schema}.queues q
                  WHERE q.name = ANY (%(queues)s::text[])
                    AND (q.paused_at IS NOT NULL OR (%(ahead)s AND q.max_running IS NOT NULL)))
              THEN true ELSE {schema}_internal.refuse_start(max(d.due_at)) END
       FROM unnest(%(dues)s::timestamptz[]) d(due_at))
ORDER BY 1, 2, 3, 4
ON CONFLICT ON CONSTRAINT uq_execution DO NOTHING
RETURNING e.lease_token, e.id, e.started_at

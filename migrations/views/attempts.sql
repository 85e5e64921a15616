-- Every attempt of every execution, from the row and its history, as one list. Conditions on the key use the
-- primary key, and only histories that are not empty are read. Viewers may read it, so it has a digest of each
-- lease_token instead of the token.
CREATE OR REPLACE VIEW {schema}.attempts AS
SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id, e.trigger, e.revision, e.queue, e.due_at,
       e.requested_by, (a.entry ->> 'attempt')::integer AS attempt,
       CASE WHEN a.number = 1 THEN 'won'
            WHEN e.attempts -> (a.number - 2)::integer ->> 'error_code' = 'runner_crashed' THEN 'stolen'
            ELSE 'again' END AS how,
       a.entry ->> 'runner_id' AS runner_id, md5(a.entry ->> 'lease_token') AS token_digest,
       (a.entry ->> 'started_at')::timestamptz AS started_at,
       (a.entry ->> 'last_seen')::timestamptz AS last_seen,
       (a.entry ->> 'ended_at')::timestamptz AS ended_at, a.entry ->> 'error_code' AS error_code,
       CASE WHEN a.entry ->> 'error_code' NOT IN ('runner_crashed', 'stale_timeout', 'not_ended')
            THEN (a.entry ->> 'ended_at')::timestamptz
            ELSE (a.entry ->> 'last_seen')::timestamptz END AS ran_until,
       false AS is_last, coalesce((a.entry ->> 'repeats')::integer, 0) AS repeats
FROM {schema}.executions e
CROSS JOIN LATERAL jsonb_array_elements(e.attempts) WITH ORDINALITY AS a(entry, number)
WHERE e.attempts <> '[]'
  -- An attempt that was released, CANCELLED at once, and retried by hand is in the list twice.
  AND e.attempts -> (a.number - 2)::integer ->> 'attempt' IS DISTINCT FROM
      CASE WHEN a.number > 1 THEN a.entry ->> 'attempt' END
UNION ALL
SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id, e.trigger, e.revision, e.queue, e.due_at,
       e.requested_by, e.attempt,
       CASE WHEN e.attempts = '[]' THEN 'won'
            WHEN e.attempts -> -1 ->> 'error_code' = 'runner_crashed' THEN 'stolen'
            ELSE 'again' END,
       e.runner_id, md5(e.lease_token::text), e.started_at, e.heartbeat_at, e.finished_at, e.error_code,
       CASE WHEN e.status = 'RUNNING' THEN 'infinity'
            WHEN e.error_code IN ('stale_timeout', 'not_ended') THEN coalesce(e.heartbeat_at, e.started_at)
            ELSE e.finished_at END,
       true, 0
FROM {schema}.executions e
WHERE e.status <> 'PENDING' AND e.started_at IS NOT NULL AND e.lease_token IS NOT NULL
  AND (e.attempts = '[]' OR e.attempts -> -1 ->> 'attempt' IS DISTINCT FROM e.attempt::text);
COMMENT ON VIEW {schema}.attempts IS 'Every attempt that was claimed, one row each, from executions and their history.';
COMMENT ON COLUMN {schema}.attempts.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.attempts.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.attempts.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.attempts.plan_time IS 'Nominal instant of the firing.';
COMMENT ON COLUMN {schema}.attempts.id IS 'Id of the execution.';
COMMENT ON COLUMN {schema}.attempts.trigger IS 'Origin of the execution: schedule, manual, backfill, enqueue.';
COMMENT ON COLUMN {schema}.attempts.revision IS 'Revision of the job that the plan_time belongs to.';
COMMENT ON COLUMN {schema}.attempts.queue IS 'Queue of the execution.';
COMMENT ON COLUMN {schema}.attempts.due_at IS 'When the execution might start.';
COMMENT ON COLUMN {schema}.attempts.requested_by IS 'The person or program that requested the execution; NULL for the schedule. The view audit has its retries.';
COMMENT ON COLUMN {schema}.attempts.attempt IS 'Number of the attempt.';
COMMENT ON COLUMN {schema}.attempts.how IS 'won: the first one. stolen: the lease of the previous one was stale. again: retried, or claimed after a release.';
COMMENT ON COLUMN {schema}.attempts.runner_id IS 'Runner that held it.';
COMMENT ON COLUMN {schema}.attempts.token_digest IS 'MD5 of its lease_token, which is a secret of its holder. Tokens are random and are not reused.';
COMMENT ON COLUMN {schema}.attempts.started_at IS 'When it was claimed.';
COMMENT ON COLUMN {schema}.attempts.last_seen IS 'When its lease was last renewed.';
COMMENT ON COLUMN {schema}.attempts.ended_at IS 'When its end was written; NULL: it is RUNNING, or was stolen.';
COMMENT ON COLUMN {schema}.attempts.error_code IS 'How it ended, in one word; NULL: it succeeded or is RUNNING.';
COMMENT ON COLUMN {schema}.attempts.ran_until IS 'The latest instant at which it is known to have run: its end, or last_seen if its end is unknown; infinity while it is RUNNING.';
COMMENT ON COLUMN {schema}.attempts.is_last IS 'Whether it is the newest attempt of the execution.';
COMMENT ON COLUMN {schema}.attempts.repeats IS 'How many attempts before this one were not ready as well, and have no row of their own.';

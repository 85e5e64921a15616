-- Due executions that exist already: PENDING ones are won, FAILED ones retried, stale leases stolen;
-- each under a new token as its next attempt. How the attempt before ended goes into attempts.
-- Lock: schedule rows are held; executions FOR UPDATE in key order, SKIP LOCKED (a locked row has a
-- living writer, or a user's assert_lease holds it FOR KEY SHARE). Every test of the scans is made
-- again here. A row that does not come back was not to be had.
WITH held AS MATERIALIZED (
    SELECT u.*, e.status AS old_status FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[],
            %(plans)s::timestamptz[], %(tokens)s::uuid[], %(stale_timeouts)s::interval[],
            %(reentrant)s::boolean[])
        AS u(job, kind, scope, plan, token, stale_timeout, reentrant)
    JOIN {schema}.executions e
        ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
    WHERE e.plan_time BETWEEN %(first)s AND %(last)s
      AND ((e.next_attempt_at <= {schema}.db_now() AND e.attempt < e.max_attempts)
        OR (e.status = (SELECT 'RUNNING') AND u.reentrant AND e.stale_after < {schema}.db_now()
            AND e.cancel_requested_at IS NULL
            AND {schema}.db_now() - u.stale_timeout >= %(trusted_since)s
            AND e.attempt < greatest(e.max_attempts, %(max_steals)s)))
    ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE {schema}.executions e
SET status = 'RUNNING', attempt = e.attempt + 1,
    max_attempts = greatest(e.max_attempts, e.attempt + 1),
    runner_id = %(runner)s, lease_token = h.token, next_attempt_at = NULL,
    heartbeat_at = {schema}.db_now(), stale_after = {schema}.db_now() + h.stale_timeout,
    started_at = {schema}.db_now(), finished_at = NULL, duration_ms = NULL, rows_affected = NULL,
    result = NULL, output = NULL, error_code = NULL, error_msg = NULL,
    cancel_requested_at = NULL, cancel_requested_by = NULL, updated_at = {schema}.db_now(),
    attempts = CASE WHEN e.status = 'PENDING' THEN e.attempts
        ELSE e.attempts || jsonb_build_object(
            'attempt', e.attempt, 'runner_id', e.runner_id, 'lease_token', e.lease_token,
            'started_at', e.started_at, 'last_seen', e.heartbeat_at, 'ended_at', e.finished_at,
            'error_code', CASE e.status WHEN 'RUNNING' THEN 'runner_crashed' ELSE e.error_code END,
            'error_msg', CASE e.status WHEN 'RUNNING' THEN 'lease not renewed; stolen by ' || %(runner)s
                         ELSE e.error_msg END) END
FROM held h
WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (h.job, h.kind, h.scope, h.plan)
  AND e.plan_time BETWEEN %(first)s AND %(last)s
RETURNING e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id, e.lease_token, e.attempt,
          e.max_attempts, e.trigger, e.payload::text, e.revision, e.started_at,
          CASE h.old_status WHEN 'PENDING' THEN 'won' WHEN 'FAILED' THEN 'retried' ELSE 'stolen' END

-- Executions go back to PENDING with one attempt more: a drain, or a claim that never started.
-- Where the end was asked for they are CANCELLED instead.
-- Only by the holder of the token. Lock: executions FOR NO KEY UPDATE in key order, waiting. A token
-- that does not come back was ended by somebody else.
WITH held AS MATERIALIZED (
    SELECT u.*, e.cancel_requested_at IS NOT NULL AS ends
    FROM (SELECT * FROM unnest(
              %(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[],
              %(tokens)s::uuid[])
          LIMIT cardinality(%(tokens)s::uuid[]))
        AS u(job, kind, scope, plan, token)
    JOIN {schema}.executions e
        ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
    WHERE e.plan_time BETWEEN %(first)s AND %(last)s
      AND e.lease_token = u.token AND e.status = (SELECT 'RUNNING')
    ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
    FOR NO KEY UPDATE OF e
)
UPDATE {schema}.executions e
SET status = CASE WHEN h.ends THEN 'CANCELLED' ELSE 'PENDING' END,
    next_attempt_at = CASE WHEN NOT h.ends THEN e.due_at END, max_attempts = e.max_attempts + 1,
    runner_id = CASE WHEN h.ends THEN e.runner_id END,
    lease_token = CASE WHEN h.ends THEN e.lease_token END,
    heartbeat_at = CASE WHEN h.ends THEN e.heartbeat_at END,
    stale_after = CASE WHEN h.ends THEN e.stale_after END,
    finished_at = CASE WHEN h.ends THEN {schema}.db_now() END, updated_at = {schema}.db_now(),
    attempts = e.attempts || jsonb_build_object(
        'attempt', e.attempt, 'runner_id', e.runner_id, 'lease_token', e.lease_token,
        'started_at', e.started_at, 'last_seen', e.heartbeat_at, 'ended_at', {schema}.db_now(),
        'error_code', %(error_code)s::text, 'error_msg', %(error_msg)s::text)
FROM held h
WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (h.job, h.kind, h.scope, h.plan)
  AND e.plan_time BETWEEN %(first)s AND %(last)s
  AND e.lease_token = h.token AND e.status = (SELECT 'RUNNING')
RETURNING h.token

-- How attempts ended: status, result, output, error in one write each, by the holder of the token.
-- FAILED with a wait and an attempt left is retried; without, never.
-- Lock: executions FOR NO KEY UPDATE in key order, waiting (a heartbeat or a cancel is short). A
-- token that does not come back was written already (unknown COMMIT) or is lost: read_leases tells.
-- With each token: whether its (job, scope) has input, and settle_inputs is to follow.
WITH held AS MATERIALIZED (
    SELECT u.*, e.watermark IS NOT NULL OR e.enqueue_key IS NOT NULL AS has_input
    FROM (SELECT * FROM unnest(
              %(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[],
              %(tokens)s::uuid[], %(statuses)s::text[], %(results)s::jsonb[],
              %(rows_affected)s::bigint[], %(outputs)s::text[], %(error_codes)s::text[],
              %(error_msgs)s::text[], %(durations_ms)s::bigint[], %(retries_after)s::interval[],
              %(watermarks)s::bigint[], %(covers)s::boolean[])
          LIMIT cardinality(%(tokens)s::uuid[]))
        AS u(job, kind, scope, plan, token, status, result, rows_affected, output, error_code,
             error_msg, duration_ms, retry_after, watermark, covers)
    JOIN {schema}.executions e
        ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
    WHERE e.plan_time BETWEEN %(first)s AND %(last)s
      AND e.lease_token = u.token AND e.status = (SELECT 'RUNNING')
    ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
    FOR NO KEY UPDATE OF e
)
UPDATE {schema}.executions e
SET status = h.status, result = h.result, rows_affected = h.rows_affected, output = h.output,
    error_code = h.error_code, error_msg = h.error_msg, duration_ms = h.duration_ms,
    finished_at = {schema}.db_now(), updated_at = {schema}.db_now(),
    watermark = CASE WHEN h.covers THEN h.watermark ELSE e.watermark END,
    next_attempt_at = CASE WHEN h.status = 'FAILED' AND e.attempt < e.max_attempts
                                AND e.cancel_requested_at IS NULL
                           THEN {schema}.db_now() + h.retry_after END
FROM held h
WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (h.job, h.kind, h.scope, h.plan)
  AND e.plan_time BETWEEN %(first)s AND %(last)s
  AND e.lease_token = h.token AND e.status = (SELECT 'RUNNING')
RETURNING e.lease_token, h.has_input OR e.watermark IS NOT NULL

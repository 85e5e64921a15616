CREATE OR REPLACE VIEW {schema}.crashes AS
SELECT e.id, e.job_name, e.scope_kind, e.scope_id, e.plan_time, c.attempt, c.runner_id, c.started_at,
       c.last_seen, c.noticed_at, c.error_code, e.status,
       CASE WHEN e.attempt = c.attempt AND e.next_attempt_at IS NULL AND e.status IN ('FAILED', 'CANCELLED')
            THEN format('%s; the end of the attempt is unknown, and it is not run again', e.status)
            WHEN e.status = 'SUCCESS' THEN format('attempt %s succeeded on %s', e.attempt, e.runner_id)
            WHEN e.status = 'RUNNING' THEN format('attempt %s runs on %s', e.attempt, e.runner_id)
            WHEN e.next_attempt_at IS NOT NULL THEN format('attempt %s is due %s', e.attempt + 1, {schema}_internal.utc_text(e.next_attempt_at))
            WHEN e.status = 'CANCELLED' THEN format('cancelled by %s', coalesce(e.cancel_requested_by, 'its runner'))
            ELSE format('attempt %s failed: %s', e.attempt, e.error_code) END AS became,
       (SELECT j.owner FROM {schema}.jobs j WHERE j.name = e.job_name) AS owner,
       (SELECT j.labels FROM {schema}.jobs j WHERE j.name = e.job_name) AS labels
FROM {schema}.executions e
CROSS JOIN LATERAL (
    SELECT (a.entry ->> 'attempt')::integer AS attempt, a.entry ->> 'runner_id' AS runner_id,
           (a.entry ->> 'started_at')::timestamptz AS started_at,
           (a.entry ->> 'last_seen')::timestamptz AS last_seen,
           coalesce((a.entry ->> 'ended_at')::timestamptz,  -- stolen: when the next attempt began
                    (e.attempts -> a.number::integer ->> 'started_at')::timestamptz, e.started_at) AS noticed_at,
           a.entry ->> 'error_code' AS error_code
    FROM jsonb_array_elements(e.attempts) WITH ORDINALITY AS a(entry, number)
    WHERE a.entry ->> 'error_code' IN ('runner_crashed', 'stale_timeout')
    UNION ALL
    SELECT e.attempt, e.runner_id, e.started_at, e.heartbeat_at, e.finished_at, e.error_code
    WHERE e.status IN ('FAILED', 'CANCELLED') AND e.error_code = 'stale_timeout'
      AND e.runner_id IS NOT NULL
) c
WHERE e.plan_time > {schema}.db_now() - interval '7 days'
  -- The condition of executions_lost.
  AND (e.attempts @> '[{"error_code": "runner_crashed"}]' OR e.attempts @> '[{"error_code": "stale_timeout"}]'
       OR e.error_code = 'stale_timeout');
COMMENT ON VIEW {schema}.crashes IS 'Attempts that ended because their runner vanished, plan_times of the last 7 days.';
COMMENT ON COLUMN {schema}.crashes.id IS 'Id of the execution.';
COMMENT ON COLUMN {schema}.crashes.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.crashes.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.crashes.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.crashes.plan_time IS 'Nominal instant of the firing.';
COMMENT ON COLUMN {schema}.crashes.attempt IS 'Number of the attempt that was lost.';
COMMENT ON COLUMN {schema}.crashes.runner_id IS 'Runner that vanished.';
COMMENT ON COLUMN {schema}.crashes.started_at IS 'When that attempt was claimed.';
COMMENT ON COLUMN {schema}.crashes.last_seen IS 'When the runner last renewed the lease.';
COMMENT ON COLUMN {schema}.crashes.noticed_at IS 'When it was stolen or swept.';
COMMENT ON COLUMN {schema}.crashes.error_code IS 'runner_crashed: stolen by another runner; stale_timeout: swept.';
COMMENT ON COLUMN {schema}.crashes.status IS 'Status of the execution now.';
COMMENT ON COLUMN {schema}.crashes.became IS 'Its outcome as a sentence.';
COMMENT ON COLUMN {schema}.crashes.owner IS 'Current owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.crashes.labels IS 'Current labels of the job; NULL or empty: it has none.';

-- Ends stale leases that may not be stolen, because the job is not reentrant, has no attempt left, or is
-- deleted or retired, or because it has a host scope that is retired or whose host has been absent for longer than
-- grace (only that host could steal it): FAILED stale_timeout, never retried; CANCELLED after a requested cancel. What the attempt had
-- written becomes its output. An observed execution has no lease: it is FAILED not_ended if no end was reported within
-- run_timeout.
-- Lock: executions FOR UPDATE in key order, SKIP LOCKED. trusted_since: see is_stale. Reads every RUNNING
-- row. Zero rows: nothing to sweep.
WITH held AS MATERIALIZED (
    SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, j.ping
    FROM {schema}.executions e LEFT JOIN {schema}.jobs j ON j.name = e.job_name
    WHERE e.status = 'RUNNING'
      AND {schema}_internal.is_stale(
          e.stale_after, coalesce(j.stale_timeout, interval '60 s'), %(trusted_since)s)
      AND (j.name IS NULL OR j.retired_at IS NOT NULL OR e.runner_id = 'observed' OR NOT {schema}_internal.may_be_stolen(
          j.allow_stale_reentry, e.cancel_requested_at, e.attempt, e.max_attempts)
        OR (e.scope_kind = 'host' AND (
            EXISTS (SELECT FROM {schema}.schedules s
                    WHERE (s.job_name, s.scope_kind, s.scope_id) = (e.job_name, e.scope_kind, e.scope_id)
                      AND s.retired_at IS NOT NULL AND s.returned_at IS NULL)
            OR EXISTS (SELECT FROM {schema}.hosts h
                       WHERE h.name = e.scope_id
                         AND (h.retired_at IS NOT NULL OR h.present_through + j.grace < {schema}.db_now())))))
    ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time LIMIT 500
    FOR UPDATE OF e SKIP LOCKED
)
UPDATE {schema}.executions e
SET status = CASE WHEN e.cancel_requested_at IS NULL THEN 'FAILED' ELSE 'CANCELLED' END,
    error_code = CASE WHEN e.runner_id = 'observed' THEN 'not_ended' ELSE 'stale_timeout' END,
    error_msg = CASE WHEN e.runner_id = 'observed' THEN
        format('no end was reported by %%s (run_timeout after the start); the end of the run is unknown',
                       {schema}_internal.utc_text(e.stale_after))
    ELSE format('runner %%s was last seen at %%s and its lease ended at %%s (stale_timeout = %%s); the end of attempt %%s is unknown',
                       e.runner_id, {schema}_internal.utc_text(e.heartbeat_at),
                       {schema}_internal.utc_text(e.stale_after), e.stale_after - e.heartbeat_at, e.attempt) END,
    output = {schema}_internal.take_output(e.id, e.attempt),
    finished_at = {schema}.db_now(), next_attempt_at = NULL, updated_at = {schema}.db_now(),
    changed_xact = pg_current_xact_id()
FROM held h
WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
    = (h.job_name, h.scope_kind, h.scope_id, h.plan_time)
  AND e.status = (SELECT 'RUNNING')
RETURNING e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.id, e.status, e.runner_id, e.queue, e.attempt, h.ping

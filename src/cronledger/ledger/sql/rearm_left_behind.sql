-- Makes due again the parked schedules that should not be parked any more: see unblocked_schedules.
-- Lock: schedules by key, SKIP LOCKED. Reads the schedules that are parked waiting or no_runner, of each
-- job with rows parked by a limit as many as there is room for, and the row of each job that has broken
-- ones.
WITH held AS MATERIALIZED (
    SELECT f.* FROM (
        SELECT u.job_name, u.scope_kind, u.scope_id
        FROM {schema}_internal.unblocked_schedules(NULL, NULL) u
        ORDER BY u.job_name, u.scope_kind, u.scope_id) f
    CROSS JOIN LATERAL (
        SELECT FROM {schema}.schedules s
        WHERE (s.job_name, s.scope_kind, s.scope_id) = (f.job_name, f.scope_kind, f.scope_id)
        LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) s
)
UPDATE {schema}.schedules s
SET parked = NULL, next_due_at = coalesce(s.next_plan_time, {schema}.db_now())
FROM held h
WHERE (s.job_name, s.scope_kind, s.scope_id) = (h.job_name, h.scope_kind, h.scope_id)
  AND s.parked IN ('waiting', 'limit', 'no_runner', 'spec_error')
RETURNING s.job_name, s.scope_kind, s.scope_id

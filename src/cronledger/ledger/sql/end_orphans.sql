-- Cancels the executions that wait for an attempt of a job that is retired or deleted: they were RUNNING
-- at the retirement, and failed or were released since, or they were enqueued in a transaction that committed
-- after it. Cancels those of retired host scopes as well, because only the host could run them. One row for each: its
-- id.
-- Lock: executions FOR UPDATE in key order, SKIP LOCKED. Uses a loose scan of the names of jobs that have
-- such rows. Zero rows: there are none.
WITH held AS MATERIALIZED (
    SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time
    FROM (SELECT d.job_name, j.name IS NULL OR j.retired_at IS NOT NULL AS gone
          FROM {schema}_internal.waiting_jobs() d LEFT JOIN {schema}.jobs j ON j.name = d.job_name
          WHERE j.name IS NULL OR j.retired_at IS NOT NULL
             OR EXISTS (SELECT FROM {schema}.schedules s
                        WHERE s.job_name = d.job_name AND s.scope_kind = 'host'
                          AND s.retired_at IS NOT NULL AND s.returned_at IS NULL)
          ORDER BY d.job_name OFFSET 0) d
    CROSS JOIN LATERAL (
        SELECT w.job_name, w.scope_kind, w.scope_id, w.plan_time FROM {schema}.executions w
        WHERE w.job_name = d.job_name AND w.next_attempt_at IS NOT NULL
          AND (d.gone OR (w.scope_kind = 'host' AND EXISTS (
              SELECT FROM {schema}.schedules s
              WHERE (s.job_name, s.scope_kind, s.scope_id) = (w.job_name, w.scope_kind, w.scope_id)
                AND s.retired_at IS NOT NULL AND s.returned_at IS NULL)))
        ORDER BY w.scope_kind, w.scope_id, w.plan_time FOR UPDATE SKIP LOCKED) e
    LIMIT 500
)
UPDATE {schema}.executions e
SET status = 'CANCELLED', next_attempt_at = NULL, cancel_requested_at = {schema}.db_now(),
    cancel_requested_by = 'retired', finished_at = coalesce(e.finished_at, {schema}.db_now()),
    updated_at = {schema}.db_now(), changed_xact = pg_current_xact_id()
FROM held h
WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time)
    = (h.job_name, h.scope_kind, h.scope_id, h.plan_time) AND e.next_attempt_at IS NOT NULL
RETURNING e.id

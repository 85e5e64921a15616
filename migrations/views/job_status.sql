CREATE OR REPLACE VIEW {schema}.job_status AS
WITH known AS (
    SELECT s.job_name, s.scope_kind, s.scope_id, s.next_plan_time, s.next_due_at, s.parked,
           s.retired_at IS NOT NULL AND s.returned_at IS NULL AS scope_retired
    FROM {schema}.schedules s
    UNION ALL
    SELECT j.name, j.scope_kind, NULL, NULL, NULL, NULL, false
    FROM {schema}.jobs j
    WHERE NOT EXISTS (SELECT FROM {schema}.schedules s WHERE s.job_name = j.name)
)
SELECT k.job_name, k.scope_kind, k.scope_id,
       CASE WHEN j.name IS NULL OR k.scope_retired THEN 'retired'
            WHEN of_job.state = 'broken' THEN 'spec_error'
            WHEN of_job.state <> 'active' THEN of_job.state
            WHEN k.scope_id IS NULL THEN 'no_scope'
            ELSE coalesce(k.parked, 'active') END AS state,
       j.schedule, j.timezone, j.queue, k.next_plan_time, k.next_due_at, k.parked,
       last.id AS last_execution_id, last.status AS last_status, last.plan_time AS last_plan_time,
       last.finished_at AS last_finished_at, success.finished_at AS last_success_at,
       failures.count AS consecutive_failures,
       coalesce(running.count, 0) AS running, coalesce(pending.count, 0) AS pending,
       j.paused_at, j.paused_by, j.paused_reason, j.paused_until, j.spec_error,
       p.asked_at AS provider_asked_at, p.answered_at AS provider_answered_at,
       p.failures AS provider_failures, p.error AS provider_error, j.owner, j.labels
FROM known k
LEFT JOIN {schema}.jobs j ON j.name = k.job_name
LEFT JOIN {schema}.queues q ON q.name = j.queue
CROSS JOIN LATERAL (
    SELECT {schema}_internal.job_state(j.retired_at, j.spec_error, j.paused_at, j.paused_until, q.paused_at) AS state
) of_job
LEFT JOIN {schema}.scope_providers p
    ON p.job_name = j.name AND j.scopes IS NULL AND j.scope_kind <> 'global'
LEFT JOIN LATERAL (
    SELECT e.id, e.status, e.plan_time, e.finished_at FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (k.job_name, k.scope_kind, k.scope_id)
    ORDER BY e.plan_time DESC LIMIT 1) last ON true
LEFT JOIN LATERAL (
    SELECT e.plan_time, e.finished_at FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (k.job_name, k.scope_kind, k.scope_id)
      AND e.status = 'SUCCESS'
    ORDER BY e.plan_time DESC LIMIT 1) success ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS count FROM (
        SELECT FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (k.job_name, k.scope_kind, k.scope_id)
          AND e.status = 'FAILED' AND e.plan_time > coalesce(success.plan_time, '-infinity')
        ORDER BY e.plan_time DESC LIMIT 100) f) failures
LEFT JOIN (
    SELECT e.job_name, e.scope_kind, e.scope_id, count(*) AS count FROM {schema}.executions e
    WHERE e.status = 'RUNNING' GROUP BY 1, 2, 3) running
    ON (running.job_name, running.scope_kind, running.scope_id) = (k.job_name, k.scope_kind, k.scope_id)
LEFT JOIN (
    SELECT e.job_name, e.scope_kind, e.scope_id, count(*) AS count FROM {schema}.executions e
    WHERE e.next_attempt_at IS NOT NULL GROUP BY 1, 2, 3) pending
    ON (pending.job_name, pending.scope_kind, pending.scope_id) = (k.job_name, k.scope_kind, k.scope_id);
COMMENT ON VIEW {schema}.job_status IS 'State of each job, one row per (job, scope).';
COMMENT ON COLUMN {schema}.job_status.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.job_status.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.job_status.scope_id IS 'Id of the scope; NULL: the scope provider of the job has not returned any yet.';
COMMENT ON COLUMN {schema}.job_status.state IS 'active, paused, queue_paused, retired (or deleted), spec_error, no_scope; or why it is parked: waiting (overlap), limit, no_runner, ended (ends_at), unscheduled, boot (of its host).';
COMMENT ON COLUMN {schema}.job_status.schedule IS 'Cron text; NULL: runs only when triggered or enqueued.';
COMMENT ON COLUMN {schema}.job_status.timezone IS 'Time zone of the schedule.';
COMMENT ON COLUMN {schema}.job_status.queue IS 'Queue of the job. Runners that serve it execute the job.';
COMMENT ON COLUMN {schema}.job_status.next_plan_time IS 'The next plan_time, if it is known.';
COMMENT ON COLUMN {schema}.job_status.next_due_at IS 'When a claim plans it next; NULL when parked.';
COMMENT ON COLUMN {schema}.job_status.parked IS 'Why no claim plans it; NULL: it is not parked.';
COMMENT ON COLUMN {schema}.job_status.last_execution_id IS 'Id of the execution with the newest plan_time.';
COMMENT ON COLUMN {schema}.job_status.last_status IS 'Its status.';
COMMENT ON COLUMN {schema}.job_status.last_plan_time IS 'Its plan_time.';
COMMENT ON COLUMN {schema}.job_status.last_finished_at IS 'When its last attempt ended.';
COMMENT ON COLUMN {schema}.job_status.last_success_at IS 'When the newest plan_time that succeeded finished; NULL: none within retention.';
COMMENT ON COLUMN {schema}.job_status.consecutive_failures IS 'FAILED executions since the last success; at most 100 are counted.';
COMMENT ON COLUMN {schema}.job_status.running IS 'Number of executions that are RUNNING.';
COMMENT ON COLUMN {schema}.job_status.pending IS 'Number of executions that are PENDING or await a retry.';
COMMENT ON COLUMN {schema}.job_status.paused_at IS 'When the job was paused; NULL: it is not paused.';
COMMENT ON COLUMN {schema}.job_status.paused_by IS 'The person who paused it.';
COMMENT ON COLUMN {schema}.job_status.paused_reason IS 'Why it is paused.';
COMMENT ON COLUMN {schema}.job_status.paused_until IS 'When the pause ends by itself; NULL: it lasts until the job is resumed.';
COMMENT ON COLUMN {schema}.job_status.spec_error IS 'Why the job cannot be planned or run; cleared by the next edit.';
COMMENT ON COLUMN {schema}.job_status.provider_asked_at IS 'When the scope provider of the job was last called; NULL: it has none, or it was never called.';
COMMENT ON COLUMN {schema}.job_status.provider_answered_at IS 'When it last returned a list of scopes.';
COMMENT ON COLUMN {schema}.job_status.provider_failures IS 'Calls that have failed since then.';
COMMENT ON COLUMN {schema}.job_status.provider_error IS 'Why the last call failed; NULL: it succeeded.';
COMMENT ON COLUMN {schema}.job_status.owner IS 'Current owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.job_status.labels IS 'Current labels of the job; NULL or empty: it has none.';

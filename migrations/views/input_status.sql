CREATE OR REPLACE VIEW {schema}.input_status AS
SELECT s.job_name, s.scope_kind, s.scope_id, s.input_watermark, c.success_watermark,
       coalesce(s.input_watermark > c.success_watermark, s.input_watermark IS NOT NULL) AS is_dirty,
       p.id AS pending_id, r.id AS running_id
FROM {schema}.schedules s
CROSS JOIN LATERAL (
    SELECT greatest(s.success_watermark, (
        SELECT max(e.watermark) FROM {schema}.executions e
        WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
          AND e.status = 'SUCCESS' AND e.watermark IS NOT NULL)) AS success_watermark) c
LEFT JOIN LATERAL (
    SELECT e.id FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
      AND e.next_attempt_at IS NOT NULL ORDER BY e.next_attempt_at LIMIT 1) p ON true
LEFT JOIN LATERAL (
    SELECT e.id FROM {schema}.executions e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (s.job_name, s.scope_kind, s.scope_id)
      AND e.status = 'RUNNING' ORDER BY e.plan_time LIMIT 1) r ON true
WHERE s.retired_at IS NULL OR s.returned_at IS NOT NULL;
COMMENT ON VIEW {schema}.input_status IS 'Input of each (job, scope): the enqueued input, the covered input, and the executions that wait and run.';
COMMENT ON COLUMN {schema}.input_status.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.input_status.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.input_status.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.input_status.input_watermark IS 'Newest input that was enqueued; NULL: none.';
COMMENT ON COLUMN {schema}.input_status.success_watermark IS 'Input that successes have covered.';
COMMENT ON COLUMN {schema}.input_status.is_dirty IS 'Whether there is input that no success covers yet.';
COMMENT ON COLUMN {schema}.input_status.pending_id IS 'The execution that waits for its attempt and is due first: PENDING, or FAILED and to be retried.';
COMMENT ON COLUMN {schema}.input_status.running_id IS 'The oldest execution that is RUNNING.';

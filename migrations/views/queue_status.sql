CREATE OR REPLACE VIEW {schema}.queue_status AS
SELECT n.name, q.max_running, q.paused_at, q.paused_by, q.paused_reason,
       (SELECT count(*) FROM {schema}.jobs j
        WHERE j.queue = n.name AND j.retired_at IS NULL) AS jobs,
       coalesce(w.waiting, 0) AS waiting, coalesce(b.running, 0) AS running,
       (SELECT count(*) FROM {schema}.runners r WHERE n.name = ANY (r.queues)
        AND r.state = 'running' AND r.stale_after > {schema}.db_now()) AS runners
FROM {schema}_internal.queues_in_use() n(name)
LEFT JOIN {schema}.queues q ON q.name = n.name
LEFT JOIN (SELECT e.queue, count(*) AS waiting FROM {schema}.executions e
           WHERE e.next_attempt_at IS NOT NULL GROUP BY 1) w ON w.queue = n.name
LEFT JOIN (SELECT e.queue, count(*) AS running FROM {schema}.executions e
           WHERE e.status = 'RUNNING' AND e.runner_id <> 'observed' GROUP BY 1) b ON b.queue = n.name;
COMMENT ON VIEW {schema}.queue_status IS 'Queues that a job, a runner or a waiting execution names, or that have a limit or a pause.';
COMMENT ON COLUMN {schema}.queue_status.name IS 'Name of the queue, as in jobs.queue and in the queues of runners.';
COMMENT ON COLUMN {schema}.queue_status.max_running IS 'Limit of RUNNING executions of this queue, over all replicas; NULL: no limit.';
COMMENT ON COLUMN {schema}.queue_status.paused_at IS 'When the queue was paused; NULL: it is not paused.';
COMMENT ON COLUMN {schema}.queue_status.paused_by IS 'The person who paused it.';
COMMENT ON COLUMN {schema}.queue_status.paused_reason IS 'Why it is paused.';
COMMENT ON COLUMN {schema}.queue_status.jobs IS 'Number of jobs that are not retired.';
COMMENT ON COLUMN {schema}.queue_status.waiting IS 'Number of executions that are PENDING or await a retry.';
COMMENT ON COLUMN {schema}.queue_status.running IS 'Number of executions that are RUNNING. Runs of another scheduler are not included, because they do not count for max_running.';
COMMENT ON COLUMN {schema}.queue_status.runners IS 'Number of live runners that have this queue.';

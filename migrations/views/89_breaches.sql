CREATE OR REPLACE VIEW {schema}.breaches AS
SELECT b.id, b.job_name, b.scope_kind, b.scope_id, b.plan_time, b.execution_id, b.kind, b.deadline, b.breached_at,
       b.closed_at,
       (SELECT j.owner FROM {schema}.jobs j WHERE j.name = b.job_name) AS owner,
       (SELECT j.labels FROM {schema}.jobs j WHERE j.name = b.job_name) AS labels
FROM {schema}.deadline_breaches b
WHERE b.closed_at IS NULL OR b.closed_at > b.deadline;
COMMENT ON VIEW {schema}.breaches IS 'Missed deadlines of jobs, one row each.';
COMMENT ON COLUMN {schema}.breaches.id IS 'Id of the breach.';
COMMENT ON COLUMN {schema}.breaches.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.breaches.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.breaches.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.breaches.plan_time IS 'The plan_time.';
COMMENT ON COLUMN {schema}.breaches.execution_id IS 'The execution; NULL: there was none.';
COMMENT ON COLUMN {schema}.breaches.kind IS 'The policy: start_by, finish_by or expect_duration.';
COMMENT ON COLUMN {schema}.breaches.deadline IS 'The deadline. With expect_duration: when the attempt had run for this long.';
COMMENT ON COLUMN {schema}.breaches.breached_at IS 'When the breach was recorded.';
COMMENT ON COLUMN {schema}.breaches.closed_at IS 'When the deadline was met late; NULL: it was not.';
COMMENT ON COLUMN {schema}.breaches.owner IS 'Present owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.breaches.labels IS 'Present labels of the job; NULL or empty: it has none.';

CREATE OR REPLACE VIEW {schema}.compliance AS
SELECT m.job_name, m.scope_kind, m.scope_id, m.month, sum(m.met + m.met_late + m.missed)::bigint AS deadlines,
       sum(m.met)::bigint AS met, sum(m.met_late)::bigint AS met_late, sum(m.missed)::bigint AS missed,
       (SELECT j.owner FROM {schema}.jobs j WHERE j.name = m.job_name) AS owner,
       (SELECT j.labels FROM {schema}.jobs j WHERE j.name = m.job_name) AS labels
FROM {schema}.deadline_months m GROUP BY m.job_name, m.scope_kind, m.scope_id, m.month;
COMMENT ON VIEW {schema}.compliance IS 'Judged deadlines of each (job, scope) and month: how many there were, and how many were met.';
COMMENT ON COLUMN {schema}.compliance.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.compliance.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.compliance.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.compliance.month IS 'First day of the month of the plan_times in the zone of the job.';
COMMENT ON COLUMN {schema}.compliance.deadlines IS 'Number of deadlines. Those that are not past are not among them.';
COMMENT ON COLUMN {schema}.compliance.met IS 'Number of deadlines that were met.';
COMMENT ON COLUMN {schema}.compliance.met_late IS 'Number of deadlines that were missed, and met later.';
COMMENT ON COLUMN {schema}.compliance.missed IS 'Number of deadlines that were missed, and not met since.';
COMMENT ON COLUMN {schema}.compliance.owner IS 'Present owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.compliance.labels IS 'Present labels of the job; NULL or empty: it has none.';

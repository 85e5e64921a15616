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
COMMENT ON COLUMN {schema}.breaches.deadline IS 'The deadline. With expect_duration: when the attempt had run for the expected duration.';
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
COMMENT ON VIEW {schema}.compliance IS 'Judged deadlines of each (job, scope) and month, and how many of them were met.';
COMMENT ON COLUMN {schema}.compliance.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.compliance.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.compliance.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.compliance.month IS 'First day of the month of the plan_times in the zone of the job.';
COMMENT ON COLUMN {schema}.compliance.deadlines IS 'Number of judged deadlines.';
COMMENT ON COLUMN {schema}.compliance.met IS 'Number of deadlines that were met.';
COMMENT ON COLUMN {schema}.compliance.met_late IS 'Number of deadlines that were met late.';
COMMENT ON COLUMN {schema}.compliance.missed IS 'Number of deadlines that were missed, and not met late.';
COMMENT ON COLUMN {schema}.compliance.owner IS 'Present owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.compliance.labels IS 'Present labels of the job; NULL or empty: it has none.';

CREATE OR REPLACE VIEW {schema}.verify_breaches AS
SELECT b.job_name, b.scope_kind, b.scope_id, b.plan_time, b.kind, b.deadline, b.closed_at, b.look_at
FROM {schema}.deadline_breaches b;
COMMENT ON VIEW {schema}.verify_breaches IS 'Breaches for verify, including those whose deadline turned out to be met in time.';
COMMENT ON COLUMN {schema}.verify_breaches.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.verify_breaches.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.verify_breaches.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.verify_breaches.plan_time IS 'The plan_time.';
COMMENT ON COLUMN {schema}.verify_breaches.kind IS 'The policy: start_by, finish_by or expect_duration.';
COMMENT ON COLUMN {schema}.verify_breaches.deadline IS 'The deadline.';
COMMENT ON COLUMN {schema}.verify_breaches.closed_at IS 'When the deadline was met; NULL: it was not. If this is not after the deadline, the deadline was met in time.';
COMMENT ON COLUMN {schema}.verify_breaches.look_at IS 'When the breach is checked again; NULL: the deadline was met.';

CREATE OR REPLACE VIEW {schema}.unjudged_deadlines AS
SELECT d.job_name, d.scope_kind, d.scope_id, d.plan_time, d.kind, d.deadline, d.expected, d.look_at
FROM {schema}.deadlines d
UNION ALL
SELECT m.job_name, m.scope_kind, m.scope_id, m.plan_time, k.kind, NULL, NULL, m.created_at
FROM {schema}.manual_deadlines m
CROSS JOIN (VALUES ('start_by'), ('finish_by'), ('expect_duration')) k(kind);
COMMENT ON VIEW {schema}.unjudged_deadlines IS 'Deadlines that are not judged yet. A manual execution whose deadlines are not computed yet has one row for each kind.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.plan_time IS 'The plan_time.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.kind IS 'The policy: start_by, finish_by or expect_duration.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.deadline IS 'The deadline; NULL: it counts from the start of an attempt, or is not computed yet.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.expected IS 'With expect_duration: how long an attempt may run.';
COMMENT ON COLUMN {schema}.unjudged_deadlines.look_at IS 'When it is judged, or checked again.';

CREATE OR REPLACE VIEW {schema}.deadline_progress AS
SELECT c.job_name, c.through FROM {schema}.deadline_cursors c;
COMMENT ON VIEW {schema}.deadline_progress IS 'How far the deadlines of each job are computed. A job without a row has no deadlines.';
COMMENT ON COLUMN {schema}.deadline_progress.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.deadline_progress.through IS 'Deadlines of plan_times up to this instant are judged, or are in unjudged_deadlines.';

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
COMMENT ON COLUMN {schema}.compliance.owner IS 'Current owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.compliance.labels IS 'Current labels of the job; NULL or empty: it has none.';

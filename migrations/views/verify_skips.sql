CREATE OR REPLACE VIEW {schema}.verify_skips AS
SELECT t.job_name, t.scope_kind, t.scope_id, t.from_plan_time, t.through_plan_time, t.count,
       t.reason, t.blocked_by, t.revision, t.created_at,
       (SELECT j.owner FROM {schema}.jobs j WHERE j.name = t.job_name) AS owner,
       (SELECT j.labels FROM {schema}.jobs j WHERE j.name = t.job_name) AS labels,
       t.detail
FROM {schema}.skips t;
COMMENT ON VIEW {schema}.verify_skips IS 'Skips for verify.';
COMMENT ON COLUMN {schema}.verify_skips.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.verify_skips.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.verify_skips.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.verify_skips.from_plan_time IS 'First plan_time of the range.';
COMMENT ON COLUMN {schema}.verify_skips.through_plan_time IS 'Last plan_time of the range.';
COMMENT ON COLUMN {schema}.verify_skips.count IS 'Number of plan_times in the range.';
COMMENT ON COLUMN {schema}.verify_skips.reason IS 'overlap, superseded (a newer one ran, or the window of a SUCCESS contains it), missed, paused, retired, operator (a planned skip), calendar, upstream (a required job did not succeed in time).';
COMMENT ON COLUMN {schema}.verify_skips.detail IS 'With reason calendar: the name of the excluded day. With operator: the reason of the planned skip. With upstream: what was missing. Otherwise NULL.';
COMMENT ON COLUMN {schema}.verify_skips.blocked_by IS 'Execution id that was RUNNING, with reason overlap.';
COMMENT ON COLUMN {schema}.verify_skips.revision IS 'Revision that the plan_times belong to.';
COMMENT ON COLUMN {schema}.verify_skips.created_at IS 'When the range began.';
COMMENT ON COLUMN {schema}.verify_skips.owner IS 'Current owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.verify_skips.labels IS 'Current labels of the job; NULL or empty: it has none.';

CREATE OR REPLACE VIEW {schema}.deadline_progress AS
SELECT c.job_name, c.through FROM {schema}.deadline_cursors c;
COMMENT ON VIEW {schema}.deadline_progress IS 'Progress of the computation of deadlines, by job. A job without a row has no deadlines.';
COMMENT ON COLUMN {schema}.deadline_progress.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.deadline_progress.through IS 'Deadlines of plan_times up to this instant are judged, or are in unjudged_deadlines.';

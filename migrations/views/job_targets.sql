CREATE OR REPLACE VIEW {schema}.job_targets AS
SELECT j.name, {schema}_internal.masked_target(j.target) AS target, j.payload FROM {schema}.jobs j;
COMMENT ON VIEW {schema}.job_targets IS 'Targets and payloads of the jobs, one row each.';
COMMENT ON COLUMN {schema}.job_targets.name IS 'The job.';
COMMENT ON COLUMN {schema}.job_targets.target IS 'Target of the handler; the values of env and headers, and passwords in URLs, are ***.';
COMMENT ON COLUMN {schema}.job_targets.payload IS 'JSON that is passed to the handler.';

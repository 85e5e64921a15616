CREATE OR REPLACE VIEW {schema}.job_pauses AS
SELECT j.name AS job_name, p.id, p.from_at > {schema}.db_now() AS is_planned, p.from_at, p.until_at, p.reason,
       p.requested_by
FROM {schema}.pauses p
JOIN {schema}.jobs j ON j.retired_at IS NULL AND {schema}_internal.pause_covers(p, j)
WHERE p.ended_at IS NULL AND coalesce(p.until_at > {schema}.db_now(), true);
COMMENT ON VIEW {schema}.job_pauses IS 'The pauses that are planned or in force, one row for each job that they select now.';
COMMENT ON COLUMN {schema}.job_pauses.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.job_pauses.id IS 'Number of the pause.';
COMMENT ON COLUMN {schema}.job_pauses.is_planned IS 'Whether it is still to begin.';
COMMENT ON COLUMN {schema}.job_pauses.from_at IS 'It applies to plan_times that are due at this instant or later.';
COMMENT ON COLUMN {schema}.job_pauses.until_at IS 'It applies to plan_times that are due up to and including this instant, and then ends; NULL: it lasts until it is ended.';
COMMENT ON COLUMN {schema}.job_pauses.reason IS 'Why; NULL: no reason was given.';
COMMENT ON COLUMN {schema}.job_pauses.requested_by IS 'The person or program that requested it.';

CREATE OR REPLACE VIEW {schema}.pause_status AS
SELECT p.id,
       CASE WHEN p.ended_at IS NOT NULL THEN CASE WHEN p.begun_at IS NULL THEN 'withdrawn' ELSE 'ended' END
            WHEN p.until_at <= {schema}.db_now() THEN 'ended'
            WHEN p.begun_at IS NULL AND p.from_at > {schema}.db_now() THEN 'planned'
            ELSE 'in force' END AS state,
       p.job_name, p.queue, p.owner, p.labels, p.from_at, p.until_at, p.reason, p.requested_by, p.created_at,
       p.begun_at, p.ended_at, p.ended_by,
       {schema}_internal.is_wide(p) AS is_wide,
       (SELECT count(*) FROM {schema}.jobs j
        WHERE j.retired_at IS NULL AND {schema}_internal.pause_covers(p, j)) AS jobs
FROM {schema}.pauses p;
COMMENT ON VIEW {schema}.pause_status IS 'Pauses of jobs: those that are planned, in force and over.';
COMMENT ON COLUMN {schema}.pause_status.id IS 'Number of the pause.';
COMMENT ON COLUMN {schema}.pause_status.state IS 'planned, in force, ended, or withdrawn (before it began).';
COMMENT ON COLUMN {schema}.pause_status.job_name IS 'The job that it selects; NULL: jobs of any name.';
COMMENT ON COLUMN {schema}.pause_status.queue IS 'The queue whose jobs it selects; NULL: any.';
COMMENT ON COLUMN {schema}.pause_status.owner IS 'The owner whose jobs it selects; NULL: any.';
COMMENT ON COLUMN {schema}.pause_status.labels IS 'Labels that the jobs have, all of them; NULL: any.';
COMMENT ON COLUMN {schema}.pause_status.from_at IS 'It applies to plan_times that are due at this instant or later.';
COMMENT ON COLUMN {schema}.pause_status.until_at IS 'It applies to plan_times that are due up to and including this instant, and then ends; NULL: it lasts until it is ended.';
COMMENT ON COLUMN {schema}.pause_status.reason IS 'Why; NULL: no reason was given.';
COMMENT ON COLUMN {schema}.pause_status.requested_by IS 'The person or program that requested it.';
COMMENT ON COLUMN {schema}.pause_status.created_at IS 'When it was planned.';
COMMENT ON COLUMN {schema}.pause_status.begun_at IS 'When the ledger noted its jobs, soon after from_at; NULL: it has not begun.';
COMMENT ON COLUMN {schema}.pause_status.ended_at IS 'When it was ended before until_at, or withdrawn before it began; NULL: neither.';
COMMENT ON COLUMN {schema}.pause_status.ended_by IS 'The person or program that ended it.';
COMMENT ON COLUMN {schema}.pause_status.is_wide IS 'Whether it may cover several jobs. resume(job) ends only pauses for which this is false.';
COMMENT ON COLUMN {schema}.pause_status.jobs IS 'How many jobs it selects now.';

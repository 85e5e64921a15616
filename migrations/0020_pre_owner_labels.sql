-- The owner of a job and its labels, for people, filters and alerts. NULL by default, which a definition leaves out
-- (10_jobs.sql), so that the history of a job without them and code that does not know them find no change.
ALTER TABLE {schema}.jobs
    ADD COLUMN owner text CHECK (length(owner) BETWEEN 1 AND 200 AND owner ~ '[^[:space:]]' AND owner !~ '[[:cntrl:]]'),
    ADD COLUMN labels jsonb CHECK (jsonb_typeof(labels) = 'object');
COMMENT ON COLUMN {schema}.jobs.owner IS 'The person or team that is responsible for the job; NULL: none is declared.';
COMMENT ON COLUMN {schema}.jobs.labels IS 'Labels of the job: a flat JSON object of texts, such as {"team": "data"}. NULL or empty: none.';
